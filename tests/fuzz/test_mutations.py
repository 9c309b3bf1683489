"""Damaged files and flags of every kind give a sentence of ours or a result, and nothing else; see targets.py."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any

import pytest
from bulkinfer.images import pillow_warnings as decoder_notices
from bulkinfer.images.decode import prepare_decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.fuzz.mutations import mutate
from tests.fuzz.targets import TARGETS
from tools.fuzz import NAMES

HANGS_S = 60  # far beyond what any input takes here, however loaded the machine is
MOST_MEMORY_BYTES = 700_000_000  # of additional memory, over all of them


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hooks as a worker has them; pytest puts the warnings machinery back after each test."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()
    yield
    decoder_notices._counts.clear()


@contextmanager
def no_hang() -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise AssertionError(f"not done after {HANGS_S} seconds")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@cache
def seeds(name: str) -> list[bytes]:
    return TARGETS[name].seeds()


def peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


# Of the seeds, by target: a card is no sidecar and the other way round, bench has no --tuned_for and no --synthetic, five
# pictures claim too much, a negative --limit; an npz is no array, and an array no npz; an archive of each form has an empty
# picture.
REFUSED = {"card": 2, "words": 1, "flag_file": 2, "decode": 5, "golden": 2, "archive": 7}


def test_every_target_is_fuzzed() -> None:
    assert tuple(TARGETS) == NAMES


def are_sentences(told: list[str]) -> bool:
    return all(sentence.strip() and len(sentence) < 1000 for sentence in told)


@pytest.mark.parametrize("name", NAMES)
def test_sound_input_is_taken(name: str) -> None:
    told = [sentence for data in seeds(name) for sentence in TARGETS[name].run(data)]
    assert len(told) == REFUSED.get(name, 0), told
    assert are_sentences(told)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_gives_a_sentence_or_a_result(name: str) -> None:
    before = peak_bytes()

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**63), st.sampled_from(seeds(name)))
    def damaged(seed: int, data: bytes) -> None:
        with no_hang():
            assert are_sentences(TARGETS[name].run(mutate(data, seeds(name), Random(seed))))

    damaged()
    assert peak_bytes() - before < MOST_MEMORY_BYTES


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_give_a_sentence_or_a_result(name: str, data: bytes) -> None:
    with no_hang():
        assert are_sentences(TARGETS[name].run(data))


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("name", ["card", "job"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whole_json_of_another_structure(name: str, data: Any) -> None:
    """One value anywhere in a sound file is replaced by any other: damage that leaves it JSON."""
    import json

    value = json.loads(data.draw(st.sampled_from(seeds(name))))
    holder, key = data.draw(st.sampled_from(list(_places(value))))
    holder[key] = data.draw(JSON)
    assert are_sentences(TARGETS[name].run(json.dumps(value).encode()))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


def test_mutations_change_something_and_repeat() -> None:
    data, make = bytes(range(100)), cache(lambda seed: mutate(bytes(range(100)), [b"other"], Random(seed)))
    made: Callable[[int], bytes] = make
    assert sum(made(seed) != data for seed in range(100)) > 90
    assert made(7) == mutate(data, [b"other"], Random(7))
