"""dispatch.py: what an event takes does not depend on how many workers there are; deaths with a host count for nothing."""

from __future__ import annotations

import sys
from collections.abc import Collection
from types import FrameType
from typing import Any

import pytest
from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.launch.engines.dispatch import Dispatcher
from bulkinfer.launch.reporting.totals import Aggregate
from bulkinfer.launch.step_queue import split_step
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Command, End, Event, Ready, RunStep, StepDone, Stop, Totals

NOTHING_USED = Totals({"seconds": {}, "runs": {}}, 0, 0.0)


class FakeWorker:
    """Keeps what it is sent."""

    def __init__(self, index: int) -> None:
        self.index, self.ready, self.ended, self.is_killed = index, False, False, False
        self.held: list[Step] = []
        self.loading: list[Step] = []
        self.running: list[Step] = []
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def kill(self) -> None:
        self.is_killed = True

    def last_words(self) -> str:
        return "its log is empty"


class Hooks:
    """Hands out steps, and makes the lines of a launch."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps, self.aggregate = steps, Aggregate(0.0)
        self.lines = 0
        self.busy: set[int] = set()

    def make_steps(self, rate: float, num_workers: int) -> list[Step]:
        return self.steps

    def most_records(self) -> int:
        return sys.maxsize

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        self.busy = set() if len(busy_workers) > 100 else set(busy_workers)
        self.aggregate.add(worker, event)
        if isinstance(event, StepDone):
            self.lines += self.aggregate.next_line(busy_workers) is not None
        return None

    def on_progress(self, worker: int, pictures: int) -> None: ...

    def must_stop(self) -> BulkinferError | None:
        return None

    def is_published(self, step: Step) -> bool:
        return False


def begun(workers: int, steps: list[Step]) -> tuple[Dispatcher, Hooks, list[FakeWorker]]:
    """So many workers that are ready and have their steps."""
    hooks = Hooks(steps)
    dispatcher = Dispatcher(hooks, workers, batch_size=2, own_partition=False)
    started = [FakeWorker(index) for index in range(workers)]
    for worker in started:
        dispatcher.add(worker)
    for worker in started:
        dispatcher.handle(worker, Ready({}, 0.1, 0.0, {}, 1))
    return dispatcher, hooks, started


def finish(dispatcher: Dispatcher, worker: FakeWorker) -> None:
    """The worker reports its first step."""
    step = worker.held[0]
    dispatcher.handle(worker, StepDone(step, len(step), len(step), {}, "", 1.0, 0.1, 0.8, NOTHING_USED))


def opcodes_of_a_round(workers: int) -> float:
    """How many operations of the interpreter an event takes on average, while each worker finishes two steps."""
    dispatcher, hooks, started = begun(workers, split_step(Step(0, 0, 10 * workers), 1))
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for worker in (*started, *started):
            finish(dispatcher, worker)
    finally:
        sys.settrace(before)
    assert hooks.lines == 2, "a line for each round"
    return count / (2 * workers)


def test_an_event_takes_as_much_with_many_workers_as_with_few() -> None:
    few, many = opcodes_of_a_round(10), opcodes_of_a_round(1000)
    assert many < 1.1 * few, (few, many)


def test_a_worker_has_its_running_step_and_the_next_one() -> None:
    dispatcher, hooks, (first, second) = begun(2, split_step(Step(0, 0, 10), 2))
    assert (first.held, second.held) == ([Step(0, 0, 2), Step(0, 2, 4)], [Step(0, 4, 6), Step(0, 6, 8)])
    finish(dispatcher, second)
    assert second.held == [Step(0, 6, 8), Step(0, 8, 10)]
    for worker in (first, first, second, second):
        assert hooks.busy >= {worker.index}
        finish(dispatcher, worker)
    assert dispatcher.is_over
    assert hooks.busy == set()
    assert [type(command) for command in first.sent] == [RunStep, RunStep, End]


def test_deaths_with_a_host_say_nothing_of_the_records() -> None:
    """Forty workers are lost at once; as deaths of their own so many would end the launch."""
    dispatcher, _, started = begun(41, split_step(Step(0, 0, 400), 2))
    for worker in started[1:]:
        assert not dispatcher.lost(worker, "lost with node n1", is_clean=False, is_wanted=False)
    assert dispatcher.refusal is None
    while not dispatcher.is_over:
        finish(dispatcher, started[0])
    assert len(dispatcher.replaced) == 40


def test_deaths_of_their_own_end_the_launch() -> None:
    dispatcher, _, started = begun(41, split_step(Step(0, 0, 400), 2))
    for worker in started[1:35]:
        dispatcher.lost(worker, "ended by signal 9 (SIGKILL)", is_clean=False)
    assert isinstance(dispatcher.refusal, RunError)
    assert str(dispatcher.refusal).endswith("ended by signal 9 (SIGKILL); its log is empty")
    assert isinstance(started[0].sent[-1], Stop)


@pytest.mark.parametrize("is_over", [True, False])
def test_a_worker_that_comes_too_late_is_killed(is_over: bool) -> None:
    dispatcher, _, (only,) = begun(1, [Step(0, 0, 2)])
    if is_over:
        finish(dispatcher, only)
    else:
        dispatcher.stop()
    late = FakeWorker(1)
    dispatcher.add(late)
    assert (late.is_killed, late.ended) == (True, is_over)


def test_a_worker_that_is_ready_when_all_is_done_has_not_died() -> None:
    dispatcher, _, (first,) = begun(1, split_step(Step(0, 0, 2), 2))
    late = FakeWorker(1)
    dispatcher.add(late)
    finish(dispatcher, first)
    assert (dispatcher.is_over, late.is_killed) == (True, True)
    dispatcher.handle(late, Ready({}, 0.1, 0.0, {}, 1))
    assert not dispatcher.lost(late, "ended by signal 9 (SIGKILL)", is_clean=False)
    assert dispatcher.replaced == []
