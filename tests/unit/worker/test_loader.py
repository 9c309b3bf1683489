"""loader.py: every record in its slot, a fixed set of batches of one shape, errors and ends that reach every consumer."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.types import Batch, Facts, Fault, Record, Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.loader import Limits, Loader, load_record
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.pipeline import StepFeed
from PIL import Image

from tests.models import RECIPE
from tests.pictures import RED, cut, encode, jpeg, solid
from tests.rows import record

FACTS = Facts("PNG", 1, 2, 2)
PATIENCE_S = 60.0  # nothing here takes a tenth of it; a machine may be busy
Array = np.ndarray[Any, Any]


def load_number(found: Record, out: Array) -> Facts:
    """Fill the slot with the record's number, so that a slot that slid to a neighbour shows."""
    out[:] = found.number % 256
    return FACTS


def loader_of(
    steps: Any,
    *,
    load: Callable[[Record, Array], Facts] = load_number,
    records: Callable[[Step], Iterator[Record]] | None = None,
    batch_size: int = 4,
    threads: int = 3,
    streams: int = 1,
    meter: Meter | None = None,
) -> Loader:
    return Loader(
        steps,
        records=records or (lambda step: (record(n) for n in range(step.start, step.end))),
        new_rows=lambda step: step,
        load=load,
        batch_shape=(batch_size, 2, 2, 3),
        marks=InFlight(threads, 0).loaders,
        num_streams=streams,
        meter=meter or Meter(),
    )


def in_time(action: Callable[[], Any]) -> Any:
    """The result of `action`, which must come: a consumer that waits for ever fails the test instead of hanging it."""
    result: list[Any] = []

    def act() -> None:
        try:
            result.append(action())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "waited in vain"
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for it, however busy the machine is."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def drain(loader: Loader) -> list[tuple[Step, int, list[int], dict[int, str]]]:
    """Consume to the end as one stream: step, offset, numbers, errors of every batch, each slot checked."""
    seen = []
    while (batch := in_time(loader.next_ready)) is not None:
        numbers = [found.number for found in batch.records[: batch.count] if found]
        for index, number in enumerate(numbers):
            expected = 0 if index in batch.errors else number % 256
            assert (batch.images_NHWC[index] == expected).all()
            assert (batch.facts[index] is None) == (index in batch.errors)
        assert not batch.images_NHWC[batch.count :].any(), "padding is zeros"
        seen.append((batch.rows, batch.offset, numbers, {i: message for i, (_, message) in batch.errors.items()}))
        loader.recycle(batch)
    return seen


@pytest.mark.parametrize(("threads", "batch_size"), [(1, 1), (1, 4), (3, 4), (8, 3)])
def test_every_record_is_in_its_slot(threads: int, batch_size: int) -> None:
    steps = [Step(0, 0, 10), Step(0, 10, 11), Step(1, 200, 223)]
    seen = sorted(drain(loader_of(steps, threads=threads, batch_size=batch_size)))
    for step in steps:
        batches = [(offset, numbers) for rows, offset, numbers, _ in seen if rows is step]
        assert [number for _, numbers in batches for number in numbers] == list(range(step.start, step.end))
        assert [offset for offset, _ in batches] == list(range(0, len(step), batch_size))
        assert all(len(numbers) == batch_size for _, numbers in batches[:-1])


def test_a_failed_record_leaves_a_slot_of_zeros_and_its_error() -> None:
    def load(found: Record, out: Array) -> Facts:
        out[:] = 99  # whatever a decoder wrote before it failed
        if found.number in (2, 5, 6):
            raise RecordError("decode", f"truncated {found.number}")
        return load_number(found, out)

    # two rounds through recycled batches: an error does not stay in its slot
    seen = drain(loader_of([Step(0, 0, 8), Step(0, 8, 80)], load=load))
    errors = {numbers[i]: message for _, _, numbers, found in seen for i, message in found.items()}
    assert errors == {2: "truncated 2", 5: "truncated 5", 6: "truncated 6"}


def test_one_shape_and_a_fixed_set_of_batches_for_the_whole_job() -> None:
    loader = loader_of([Step(0, start, start + 7) for start in range(0, 700, 7)], threads=5, batch_size=4, streams=2)
    buffers: set[int] = set()
    shapes = set()
    while (batch := in_time(loader.next_ready)) is not None:
        buffers.add(batch.images_NHWC.ctypes.data)
        shapes.add((batch.images_NHWC.shape, batch.images_NHWC.dtype.name))
        loader.recycle(batch)
    assert shapes == {((4, 2, 2, 3), "uint8")}
    assert len(buffers) <= 2 + 2 * 2 + 2


def test_loading_waits_when_nobody_consumes() -> None:
    loaded: list[int] = []

    def load(found: Record, out: Array) -> Facts:
        loaded.append(found.number)
        return load_number(found, out)

    meter = Meter()
    loader = loader_of([Step(0, 0, 1000)], load=load, threads=4, batch_size=4, meter=meter)
    until(lambda: len(loaded) == 4 * (2 + 2 + 1), "all the slots there are are filled")
    waited_s = meter.snapshot().seconds["wait_for_slot"]
    until(lambda: meter.snapshot().seconds["wait_for_slot"] > waited_s + 0.1, "the wait that is still going on counts")
    assert len(loaded) == 20, "and no more than those"
    loader.stop()
    assert len(drain(loader)) == 5
    assert len(loaded) == 20


def test_loading_runs_across_the_border_of_steps() -> None:
    loader = loader_of([Step(0, 0, 3), Step(0, 3, 6), Step(1, 0, 3)], threads=1)
    batches = [in_time(loader.next_ready) for _ in range(3)]
    assert [batch.rows for batch in batches] == [Step(0, 0, 3), Step(0, 3, 6), Step(1, 0, 3)], "none was recycled so far"
    assert in_time(loader.next_ready) is None


def test_every_stream_gets_its_end() -> None:
    loader = loader_of([Step(0, 0, 40)], streams=3)
    results: list[int] = []

    def stream() -> None:
        results.append(sum(len(numbers) for _, _, numbers, _ in drain(loader)))

    threads = [threading.Thread(target=stream, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sum(results) == 40
    assert len(results) == 3


def test_no_steps_no_batches() -> None:
    loader = loader_of([], streams=2)
    assert in_time(loader.next_ready) is None
    assert in_time(loader.next_ready) is None


def test_stop_delivers_what_is_filled_and_ends_all_streams() -> None:
    gate = threading.Event()

    def load(found: Record, out: Array) -> Facts:
        if found.number >= 8:
            gate.wait(PATIENCE_S)
        return load_number(found, out)

    loader = loader_of([Step(0, 0, 1000)], load=load, threads=2, streams=2)
    until(lambda: loader._ready.qsize() == 2, "two batches are filled")
    loader.stop()
    gate.set()
    seen = sorted(drain(loader))
    assert [numbers for _, _, numbers, _ in seen] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert in_time(loader.next_ready) is None, "the second stream"


def test_stop_while_waiting_for_more_steps() -> None:
    feed = StepFeed()
    feed.put(Step(0, 0, 4))
    loader = loader_of(feed)
    assert in_time(loader.next_ready).count == 4
    loader.stop()
    feed.close()
    assert in_time(loader.next_ready) is None


def every_end(loader: Loader, streams: int) -> list[str]:
    """How each stream ends."""
    ends = []
    for _ in range(streams):
        try:
            while (batch := in_time(loader.next_ready)) is not None:
                loader.recycle(batch)
            ends.append("end")
        except Exception as error:
            ends.append(f"{type(error).__name__}: {error}")
    return sorted(ends)


def test_an_unexpected_exception_while_loading_reaches_a_consumer_and_ends_the_others() -> None:
    def load(found: Record, out: Array) -> Facts:
        if found.number == 50:
            raise ZeroDivisionError("a bug of ours")
        return load_number(found, out)

    loader = loader_of([Step(0, 0, 1000)], load=load, streams=3)
    assert every_end(loader, 3) == ["ZeroDivisionError: a bug of ours", "end", "end"]


def test_an_exception_while_reading_the_manifest_reaches_a_consumer() -> None:
    def records(step: Step) -> Iterator[Record]:
        yield record(step.start)
        raise OSError(5, "Input/output error")

    loader = loader_of([Step(0, 0, 1000)], records=records, streams=2)
    assert every_end(loader, 2) == ["OSError: [Errno 5] Input/output error", "end"]


def test_a_manifest_that_is_too_short_is_no_silent_loss() -> None:
    loader = loader_of([Step(0, 0, 6)], records=lambda _: iter([record(0), record(1)]))
    (end,) = every_end(loader, 1)
    assert end.startswith("AssertionError: a step has")


# -- one picture's way ---------------------------------------------------------------------------------------------------


def load_file(
    path: Path, *, max_pixels: int = 10_000, max_file_bytes: int = 10_000, reduce_to: int = 0
) -> tuple[Facts, Array, Meter]:
    out, meter = np.zeros((RECIPE.height, RECIPE.width, 3), np.uint8), Meter()
    prepare_decoder()
    facts = load_record(
        Record(0, b"key", str(path).encode()), RECIPE, Limits(max_pixels, max_file_bytes, reduce_to), out, meter
    )
    return facts, out, meter


def test_load_record(tmp_path: Path) -> None:
    (tmp_path / "red.jpg").write_bytes(encode(solid(RED, (48, 36))))
    facts, out, meter = load_file(tmp_path / "red.jpg")
    assert facts == Facts("PNG", 1, 48, 36, size_bytes=(tmp_path / "red.jpg").stat().st_size)
    assert (out == RED).all()
    assert set(meter.snapshot().seconds) == {"read", "decode", "preprocess"}


def test_load_record_reduces_where_it_may(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(jpeg(640, 480))
    exact, fast = (load_file(tmp_path / "photo.jpg", max_pixels=10**6, max_file_bytes=10**6, reduce_to=n) for n in (0, 60))
    assert exact[0] == fast[0] == Facts("JPEG", 1, 640, 480, size_bytes=(tmp_path / "photo.jpg").stat().st_size)
    apart = np.abs(exact[1].astype(np.int16) - fast[1])
    assert 0 < apart.mean() < 2


@pytest.mark.parametrize(
    ("content", "limits", "stage"),
    [
        (None, {}, "read"),
        (b"", {}, "decode"),
        (cut(jpeg()), {}, "decode"),
        (jpeg(64, 48), {"max_pixels": 64 * 48 - 1}, "decode"),
        (jpeg(64, 48), {"max_file_bytes": 10}, "read"),
    ],
)
def test_load_record_says_where_it_failed(tmp_path: Path, content: bytes | None, limits: dict[str, int], stage: str) -> None:
    if content is not None:
        (tmp_path / "file.jpg").write_bytes(content)
    with pytest.raises(RecordError) as caught:
        load_file(tmp_path / "file.jpg", **limits)
    assert caught.value.stage == stage


def test_a_lone_record_in_a_batch() -> None:
    batch: Batch | None = in_time(loader_of([Step(0, 0, 1)]).next_ready)
    assert batch is not None
    assert (batch.count, batch.waiting, batch.records[1:]) == (1, 0, [None, None, None])


def test_failed_pictures_do_not_stay_in_memory(tmp_path: Path) -> None:
    """An exception in a batch would keep its traceback, that its frames, and those the pictures of 60 MB and more."""
    size, meter = (117, 93), Meter()
    (tmp_path / "cut.jpg").write_bytes(cut(jpeg(*size)))
    path = os.fsencode(tmp_path / "cut.jpg")
    prepare_decoder()
    seen: list[tuple[int, int]] = []

    def load(found: Record, out: Array) -> Facts:
        try:
            return load_record(Record(found.number, b"cut.jpg", path), RECIPE, Limits(10_000, 100_000), out, meter)
        finally:
            seen.extend(sizes_of_living_pictures())

    def sizes_of_living_pictures() -> list[tuple[int, int]]:
        return [thing.size for thing in gc.get_objects() if issubclass(type(thing), Image.Image)]

    loader = Loader([Step(0, 0, 8)], records=lambda step: (record(n) for n in range(step.start, step.end)),
                    new_rows=lambda step: step, load=load, batch_shape=(4, RECIPE.height, RECIPE.width, 3),
                    marks=InFlight(2, 0).loaders, num_streams=1, meter=meter)  # fmt: skip
    gc.disable()  # they go at once, not when it comes to it
    try:
        batches = [in_time(loader.next_ready) for _ in range(2)]
        assert size in seen, "there was a picture while it failed"
        assert size not in sizes_of_living_pictures()
    finally:
        gc.enable()
    for batch in batches:
        assert set(batch.errors) == {0, 1, 2, 3}
        for stage, message in batch.errors.values():
            assert (stage, type(message)) == ("decode", str)


def test_a_record_that_kills_is_left_alone(tmp_path: Path) -> None:
    """Its file is not even looked at."""
    out, meter = np.zeros((RECIPE.height, RECIPE.width, 3), np.uint8), Meter()
    killer = Record(
        0, b"key", os.fsencode(tmp_path / "missing.jpg"), fault=Fault("infer", "every process that touched this record died")
    )
    with pytest.raises(RecordError, match="every process that touched this record died") as caught:
        load_record(killer, RECIPE, Limits(10, 10), out, meter)
    assert caught.value.stage == "infer"
    assert not meter.snapshot().seconds
