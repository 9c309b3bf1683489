"""The part that all engines with several workers share: who runs which step, and what follows from a report or a death.

What an event takes does not grow with the number of workers: there may be thousands, and some hundred events a second.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, Protocol

from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.launch.engines import Hooks, refusal
from bulkinfer.launch.step_queue import StepQueue
from bulkinfer.types import Fault, Step
from bulkinfer.worker.protocol import Command, Died, End, Event, Ready, Recovered, Refused, RunStep, StepDone, Stop

STOP_GRACE_S = 4.0  # after a signal: time to publish what is finished; all children are gone within 5 s
_DEATHS_WITHOUT_PROGRESS = 32  # finding the record that kills its worker takes 4 + log2(batch) of them
_STARTS = 3  # a worker that dies so often before it is ready is not started again


class Worker(Protocol):
    """A worker, as the engine that started it hands it in.

    `ready`, `ended` (it was sent End) and `held` are kept by the dispatcher. `loading` and `running` are the records that its
    threads worked on when it ended, as far as that is known.
    """

    index: int
    ready: bool
    ended: bool
    held: list[Step]
    loading: list[Step]
    running: list[Step]

    def send(self, command: Command) -> None:
        """Send one command; to a worker that is dying nothing happens."""

    def kill(self) -> None:
        """End it at once; that it has ended is reported later."""

    def last_words(self) -> str:
        """What is known of its end, for a message."""


class Dispatcher:
    """Gives every worker its running step and the next one, until all are published; `workers` are those that run, by index.

    `num_workers` is how many there will be, as far as that is known. With `own_partition` worker i only gets the steps of
    partition i. `deadline` is when workers are killed after a stop, by time.monotonic(); None: nothing has stopped the launch.
    """

    def __init__(self, hooks: Hooks, num_workers: int, *, batch_size: int, own_partition: bool) -> None:
        self._hooks, self._batch_size, self._own_partition = hooks, batch_size, own_partition
        self.num_workers = num_workers
        self._queue: StepQueue | None = None
        self._killers: deque[tuple[Step, Fault]] = deque()
        self._free: tuple[dict[int, Worker], dict[int, Worker]] = ({}, {})  # ready workers that hold no step, or one
        self._busy: set[int] = set()
        self._holding: set[int] = set()
        self._deaths_in_a_row = 0  # of workers that had been ready, since a step was last published
        self._failed_starts: Counter[int] = Counter()  # in a row, by worker
        self._has_published = False
        self.is_over = False  # every step is published
        self.workers: dict[int, Worker] = {}
        self.deadline: float | None = None
        self.refusal: BulkinferError | None = None
        self.signal: int | None = None
        self.replaced: list[str] = []

    def add(self, worker: Worker) -> None:
        """A worker has been started."""
        self.workers[worker.index] = worker
        self._place(worker)
        if self.deadline is not None or self.is_over:  # a signal came while it was being started, for example
            worker.ended = worker.ended or self.is_over
            worker.kill()

    def handle(self, worker: Worker, event: Event) -> None:
        """Count what a worker reports, and give it its next step."""
        if isinstance(event, Ready):
            worker.ready = not worker.ended  # one that had nothing to run has been killed by now
            self._failed_starts[worker.index] = 0
        elif isinstance(event, StepDone):
            worker.held.remove(event.step)
            self._has_published = True
            self._deaths_in_a_row = 0
        elif isinstance(event, Refused):
            self.refuse(refusal(event, started=self._has_published))
        self._place(worker)
        self._report(worker.index, event)
        if isinstance(event, Ready) and self._queue is None and self.deadline is None:
            self._queue = StepQueue.of(self._hooks.make_steps(event.warm_up_rate, self.num_workers))
        self._feed()

    def lost(self, worker: Worker, how: str, *, is_clean: bool, is_wanted: bool = True, are_others: bool = False) -> bool:
        """A worker has ended: what it held runs again. Returns True if a new one has to take over.

        `how` is for messages, as in "ended by exit code 1"; `is_clean` is True for exit code 0. A worker that is not
        `is_wanted` is not replaced: its host is gone, which says nothing of its records. `are_others`: besides `workers`
        some are being started.
        """
        self._remove(worker)
        death = f"worker {worker.index} {how}"
        if self.deadline is not None or worker.ended:
            if not is_clean and worker.ready and self.deadline is None:
                self.replaced.append(f"{death} after its last step; nothing was lost")
            return False
        self.replaced.append(death)
        self._requeue(worker, death)
        if worker.ready:
            self._deaths_in_a_row += is_wanted
        else:
            self._failed_starts[worker.index] += is_wanted
        if self._is_hopeless(worker.index, are_others=are_others):
            self.refuse(RunError(f"workers die without getting anything done: {death}; {worker.last_words()}"))
            return False
        starts = is_wanted and self._failed_starts[worker.index] < _STARTS
        self._report(worker.index, Died(how, by_another=starts))
        self._feed()
        return starts and self.deadline is None and not self.is_over

    # -- steps -----------------------------------------------------------------------------------------------------------

    def _place(self, worker: Worker) -> None:
        """Sort a worker whose state has changed among those that wait for a step, and those that have something to finish."""
        index, holds = worker.index, len(worker.held)
        for number, free in enumerate(self._free):
            if worker.ready and holds == number:
                free.setdefault(index, worker)
            else:
                free.pop(index, None)
        for among, is_in in ((self._holding, holds > 0), (self._busy, holds > 0 or not worker.ready)):
            (among.add if is_in else among.discard)(index)

    def _remove(self, worker: Worker) -> None:
        index = worker.index
        del self.workers[index]
        for free in self._free:
            free.pop(index, None)
        self._holding.discard(index)
        self._busy.discard(index)

    def _report(self, index: int, event: Event) -> None:
        if (reason := self._hooks.on_event(index, event, self._busy)) is not None:
            self.refuse(reason)

    def _feed(self) -> None:
        """Give every ready worker its running step first and then its next one; end them all when all is published."""
        queue = self._queue
        if queue is None or self.deadline is not None or self.is_over:
            return
        for free in self._free:
            if queue.pending or self._killers:
                for worker in list(free.values()):
                    if (command := self._next(worker, queue)) is not None:
                        worker.held.append(command.step)
                        self._place(worker)
                        worker.send(command)
                    elif not (queue.pending or self._killers):
                        break
        if queue.pending or self._killers or self._holding:
            return
        self.is_over = True
        for worker in self.workers.values():
            worker.ended = True
            worker.send(End())
            if not worker.ready:  # it would load its network for no step
                worker.kill()

    def _next(self, worker: Worker, queue: StepQueue) -> RunStep | None:
        """The command for the next step of this worker; None if it has to wait."""
        if self._killers and not worker.held:
            return RunStep(*self._killers.popleft())
        partition = worker.index if self._own_partition else None
        step = queue.take(worker.held, most_records=self._hooks.most_records(), only_partition=partition)
        return None if step is None else RunStep(step)

    def _requeue(self, worker: Worker, death: str) -> None:
        """The steps of a dead worker run again, unless a part is published and only its report was lost with the worker."""
        if self._queue is None:
            return
        for step in [step for step in worker.held if self._hooks.is_published(step)]:
            worker.held.remove(step)
            self._report(worker.index, Recovered(step))
        for step in self._queue.give_back(worker.held, self._batch_size, worker.loading + worker.running):
            stage = "decode" if step in worker.loading else "infer"
            assert stage == "decode" or any(one.start <= step.start < one.end for one in worker.running), step
            self._killers.append((step, Fault(stage, f"every process that touched this record died; the last: {death}")))

    def _is_hopeless(self, index: int, *, are_others: bool) -> bool:
        """Too many deaths without a published step; or this worker never starts and nobody can do its steps."""
        never_starts, is_last = self._failed_starts[index] >= _STARTS, not (self.workers or are_others)
        return self._deaths_in_a_row > _DEATHS_WITHOUT_PROGRESS or (never_starts and (self._own_partition or is_last))

    # -- the end ---------------------------------------------------------------------------------------------------------

    def on_signal(self, number: int, _frame: Any) -> None:
        """The handler of the signals that end a launch: a second one ends it at once."""
        if self.signal is not None:
            self.deadline = 0.0
            return
        self.signal = number
        self.stop()

    def refuse(self, error: BulkinferError) -> None:
        """Stop, and end the launch with `error`; only the first one counts."""
        if self.refusal is None:
            self.refusal = error
            self.stop()

    def stop(self) -> None:
        """No new batches; workers publish what is finished, and are killed when the grace is over."""
        if self.deadline is None:
            self.deadline = time.monotonic() + STOP_GRACE_S
            for worker in self.workers.values():
                if worker.ready:
                    worker.send(Stop())
                else:
                    worker.kill()
