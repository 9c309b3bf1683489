"""ranks/world.py: what torchrun's variables may be."""

from __future__ import annotations

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.train.ranks.world import World, find_world

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def world(monkeypatch: pytest.MonkeyPatch, **given: str) -> World:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return find_world(0)


def test_what_torchrun_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch) == World(0, 1, 0, 1)
    found = world(monkeypatch, RANK="5", WORLD_SIZE="8", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
    assert (found.rank, found.replicas, found.local_rank, found.local_replicas) == (5, 8, 1, 4)


@pytest.mark.parametrize(("given", "told"), [
    ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x', and must be a whole number from 1"),
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', and must be a whole number from 1"),
    ({"WORLD_SIZE": ""}, "WORLD_SIZE is '', and must be a whole number from 1"),
    ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x', and must be a whole number from 0 to 1, as WORLD_SIZE is 2: unset it"),
    ({"RANK": "1"}, "RANK is '1', and must be a whole number from 0 to 0, as WORLD_SIZE is 1: unset it"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is '2', and must be a whole number from 0 to 1, as WORLD_SIZE is 2"),
    ({"LOCAL_RANK": "-1"}, "LOCAL_RANK is '-1', and must be a whole number from 0 to 0, as LOCAL_WORLD_SIZE is 1"),
    ({"LOCAL_WORLD_SIZE": "\u0662"}, "LOCAL_WORLD_SIZE is '\u0662', and must be a whole number from 1"),
])  # fmt: skip
def test_what_it_does_not_set_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=f"^the variable {told}"):
        world(monkeypatch, **given)
