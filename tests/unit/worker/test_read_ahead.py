"""read_ahead.py: order, errors, how many at once, memory, and ends that leave no thread waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bulkinfer.errors import RecordError, StoreError
from bulkinfer.types import Fault, Place, Record, Step
from bulkinfer.worker.pipeline import StepFeed
from bulkinfer.worker.read_ahead import ReadAhead

PATIENCE_S = 60.0  # nothing here takes a hundredth of it; a machine may be busy
STEPS = [Step(0, 0, 5), Step(0, 5, 12), Step(0, 12, 40)]


def records_of(step: Step) -> Iterator[Record]:
    return (Record(number, b"", b"%d" % number) for number in range(step.start, step.end))


def read_name(place: Place, admit: Callable[[int], None]) -> bytes:
    """The content of a picture is its name."""
    assert isinstance(place, bytes)
    admit(len(place))
    return place


def ahead_of(read: Any = read_name, steps: Any = STEPS, records: Any = records_of, **options: Any) -> ReadAhead:
    return ReadAhead(steps, records, read, **{"least": 4, **options})


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def every(ahead: ReadAhead) -> Iterator[Record]:
    for step in ahead.steps():
        yield from ahead.records(step)


def content(record: Record) -> bytes:
    assert record.ahead is not None
    return record.ahead()


class Gate:
    """A read that waits until it is let through, and counts how many wait."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Semaphore(0), threading.Semaphore(0)

    def read(self, place: Place, admit: Callable[[int], None]) -> bytes:
        self.begun.release()
        assert self.open.acquire(timeout=PATIENCE_S)
        return read_name(place, admit)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE_S)


def test_steps_and_records_come_in_order_with_their_bytes() -> None:
    ahead, found = ahead_of(), []
    for step in ahead.steps():
        numbers = [(record.number, content(record)) for record in ahead.records(step)]
        assert numbers == [(number, b"%d" % number) for number in range(step.start, step.end)]
        found.append(step)
    assert found == STEPS


def test_an_error_reaches_the_thread_that_takes_the_picture() -> None:
    def read(place: Place, admit: Callable[[int], None]) -> bytes:
        if place == b"3":
            raise RecordError("read", "object not found")
        if place == b"7":
            raise StoreError("the bucket is gone")
        return read_name(place, admit)

    found: dict[int, str] = {}
    for record in every(ahead_of(read)):
        try:
            content(record)
        except (RecordError, StoreError) as error:
            found[record.number] = str(error)
    assert found == {3: "object not found", 7: "the bucket is gone"}


def test_an_error_of_the_records_is_raised_where_they_are_taken() -> None:
    def records(step: Step) -> Iterator[Record]:
        yield from records_of(step)
        raise ZeroDivisionError

    def broken(step: Step) -> Iterator[Record]:
        raise ZeroDivisionError
        yield

    assert len([content(record) for record in every(ahead_of(records=records))]) == 40  # nobody asks for more
    with pytest.raises(ZeroDivisionError):
        list(every(ahead_of(records=broken)))


def test_a_picture_that_ends_every_process_is_not_read() -> None:
    fault = Fault("decode", "the process ended")

    def records(step: Step) -> Iterator[Record]:
        return (Record(record.number, b"", b"x", fault=fault) for record in records_of(step))

    def read(place: Place, admit: Callable[[int], None]) -> bytes:
        raise AssertionError(place)

    assert all(record.fault is fault and record.ahead is None for record in every(ahead_of(read, records=records)))


def test_no_more_are_read_at_once_than_the_depth() -> None:
    gate = Gate()
    ahead = ahead_of(gate.read)
    gate.wait_for(4)
    assert not gate.begun.acquire(blocking=False)
    gate.open.release(40)
    assert [content(record) for record in every(ahead)] == [b"%d" % number for number in range(40)]


def test_waiting_reads_more_at_once_and_plenty_reads_fewer() -> None:
    gates = {b"%d" % number: threading.Event() for number in range(200)}

    def read(place: Place, admit: Callable[[int], None]) -> bytes:
        assert isinstance(place, bytes)
        assert gates[place].wait(PATIENCE_S)
        return read_name(place, admit)

    ahead = ahead_of(read, [Step(0, 0, 200)], most=20)
    records = every(ahead)
    for number in range(50):
        taker = threading.Thread(target=content, args=(next(records),))
        taker.start()
        until(lambda: ahead.waiting == 1)
        gates[b"%d" % number].set()
        taker.join(PATIENCE_S)
    assert ahead.depth == 20
    for gate in gates.values():
        gate.set()
    for record in records:
        until(lambda: ahead.ready >= min(ahead.depth, 200 - record.number))  # noqa: B023
        content(record)
    assert ahead.depth < 20


def test_memory_is_bounded_but_for_the_picture_that_is_waited_for() -> None:
    held, most, lock = 0, 0, threading.Lock()

    def read(place: Place, admit: Callable[[int], None]) -> bytes:
        nonlocal held, most
        admit(60)
        with lock:
            held += 60
            most = max(most, held)
        return bytes(60)

    ahead = ahead_of(read, least=8, most_bytes=150)
    for record in every(ahead):
        assert len(content(record)) == 60
        with lock:
            held -= 60
    assert most <= 150 + 60
    assert ahead._bytes == 0


def test_a_stop_begins_no_further_picture_and_leaves_no_thread_waiting() -> None:
    gate, feed = Gate(), StepFeed()
    feed.put(Step(0, 0, 400))
    ahead = ahead_of(gate.read, feed)
    gate.wait_for(4)
    records = every(ahead)
    first = next(records)
    ahead.stop()
    gate.open.release(100)
    assert content(first) == b"0"  # what was begun is finished
    assert [record.number for record in records] == [1, 2, 3]


def test_it_ends_with_the_feed() -> None:
    feed = StepFeed()
    ahead = ahead_of(steps=feed)
    feed.put(Step(0, 0, 2))
    steps = ahead.steps()
    step = next(steps)
    assert [content(record) for record in ahead.records(step)] == [b"0", b"1"]
    feed.close()
    assert next(steps, None) is None
