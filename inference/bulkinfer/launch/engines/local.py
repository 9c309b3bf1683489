"""The engine of one host: start, feed, watch and replace one worker process per device."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.engines import Hooks, refusal, signals_to_handle
from bulkinfer.launch.engines.worker_handle import WorkerHandle, start_worker
from bulkinfer.launch.step_queue import StepQueue
from bulkinfer.types import Fault, Step
from bulkinfer.worker.protocol import (
    Died,
    End,
    Event,
    Ready,
    Recovered,
    Refused,
    RunStep,
    StepDone,
    Stop,
    decode,
)

_LOOK_S = 1.0  # between two looks at how far the workers are, and two questions to the launch whether it may go on
STOP_GRACE_S = 4.0  # after a signal: time to publish what is finished; all children are gone within 5 s
_DEATHS_WITHOUT_PROGRESS = 32  # finding the record that kills its worker takes 4 + log2(batch) of them
_STARTS = 3  # a worker that dies so often before it is ready is not started again


class LocalEngine:
    """Runs all steps on `plan.num_devices` processes; a dead one is replaced and its unpublished steps run again."""

    def __init__(
        self, run_file: Path, plan: ThreadPlan, hooks: Hooks, *, batch_size: int, own_partition: bool, stall_timeout_s: float
    ) -> None:
        self._run_file, self._plan, self._hooks = run_file, plan, hooks
        self._batch_size, self._own_partition, self._stall_timeout_s = batch_size, own_partition, stall_timeout_s
        self._watched_at = time.monotonic()
        self._queue: StepQueue | None = None
        self._killers: deque[tuple[Step, Fault]] = deque()
        self._workers: dict[int, WorkerHandle] = {}
        self._selector = selectors.DefaultSelector()
        self._deaths_in_a_row = 0  # of workers that had been ready, since a step was last published
        self._failed_starts: Counter[int] = Counter()  # in a row, by worker
        self._deadline: float | None = None
        self._refusal: BulkinferError | None = None
        self._started = False  # at least one step was published
        self.signal: int | None = None
        self.replaced: list[str] = []

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker or a hook refused with."""
        waking, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(waking, selectors.EVENT_READ)
        before = {number: signal.signal(number, self._on_signal) for number in signals_to_handle()}
        if before:
            signal.set_wakeup_fd(wake)
        try:
            for index in range(self._plan.num_devices):
                if self._deadline is None:
                    self._start(index, takes_over=False)
            while self._workers:
                for key, _ in self._selector.select(self._wait_s()):
                    if key.data is None:
                        os.read(waking, 64)
                    else:
                        self._read(key.data)
                self._watch()
                if self._deadline is None and (reason := self._hooks.must_stop()) is not None:
                    self._refuse(reason)
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._kill_all()
        finally:
            self._kill_all()
            if before:
                signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(waking)
            os.close(wake)
            self._selector.close()
        if self._refusal:
            raise self._refusal

    def _wait_s(self) -> float:
        """Seconds until something must be checked, unless a worker reports or a signal comes."""
        if self._deadline is not None:
            return max(0.0, self._deadline - time.monotonic())
        return min(_LOOK_S, self._stall_timeout_s / 16) if self._stall_timeout_s else _LOOK_S

    def _watch(self) -> None:
        """Tell the launch how far the workers are, and end those that had work and made no progress for too long.

        Time in which this process was stopped is left out.
        """
        for worker in self._workers.values():
            self._hooks.on_progress(worker.index, worker.in_flight.finished())
        if not self._stall_timeout_s or self._deadline is not None:
            return
        now = time.monotonic()
        watched_s = min(now - self._watched_at, self._stall_timeout_s / 8)
        self._watched_at = now
        for worker in self._workers.values():
            if worker.is_stalled(watched_s, self._stall_timeout_s) and not worker.ended_for:
                worker.end(f"ended for making no progress in {self._stall_timeout_s:g} s")

    # -- processes -------------------------------------------------------------------------------------------------------

    def _start(self, index: int, *, takes_over: bool) -> None:
        worker = start_worker(self._run_file, index, self._plan, takes_over=takes_over)
        self._workers[index] = worker
        self._selector.register(worker.reports, selectors.EVENT_READ, worker)
        if self._deadline is not None:  # a signal came while it was being started
            worker.process.kill()

    def _read(self, worker: WorkerHandle) -> None:
        """Read what a worker reports; end of file means that it is dead or done."""
        chunk = os.read(worker.reports, 1 << 16)
        *lines, worker.unread = (worker.unread + chunk).split(b"\n")
        for line in lines:
            self._handle(worker, decode(line))
        if not chunk:
            self._gone(worker)

    def _handle(self, worker: WorkerHandle, event: Event) -> None:
        if isinstance(event, Ready):
            worker.ready = True
            self._failed_starts[worker.index] = 0
        elif isinstance(event, StepDone):
            worker.held.remove(event.step)
            self._started = True
            self._deaths_in_a_row = 0
        elif isinstance(event, Refused):
            self._refuse(refusal(event, started=self._started))
        self._report(worker.index, event)
        if isinstance(event, Ready) and self._queue is None and self._deadline is None:
            self._queue = StepQueue.of(self._hooks.make_steps(event.warm_up_rate))
        self._feed()

    def _report(self, index: int, event: Event) -> None:
        busy = [worker.index for worker in self._workers.values() if worker.held or not worker.ready]
        if (reason := self._hooks.on_event(index, event, busy)) is not None:
            self._refuse(reason)

    def _feed(self) -> None:
        """Give every ready worker its running step first and then its next one; end them all when all is published."""
        if self._queue is None or self._deadline is not None:
            return
        for holding in (0, 1):
            for worker in list(self._workers.values()):
                if worker.ready and len(worker.held) == holding and (command := self._next(worker, self._queue)) is not None:
                    worker.held.append(command.step)
                    worker.send(command)
        if self._queue.pending or self._killers or any(worker.held for worker in self._workers.values()):
            return
        for worker in self._workers.values():
            if not worker.ended:
                worker.ended = True
                worker.send(End())
                if not worker.ready:  # it would load its network for no step
                    worker.process.kill()

    def _next(self, worker: WorkerHandle, queue: StepQueue) -> RunStep | None:
        """The command for the next step of this worker; None if it has to wait."""
        if self._killers and not worker.held:
            return RunStep(*self._killers.popleft())
        partition = worker.index if self._own_partition else None
        step = queue.take(worker.held, most_records=self._hooks.most_records(), only_partition=partition)
        return None if step is None else RunStep(step)

    def _gone(self, worker: WorkerHandle) -> None:
        """A worker's pipe closed: it has ended, or it died and is replaced."""
        code = self._reap(worker)
        death = f"worker {worker.index} {worker.how(code)}"
        if self._deadline is not None or worker.ended:
            if code != 0 and worker.ready and self._deadline is None:
                self.replaced.append(f"{death} after its last step; nothing was lost")
            return
        self.replaced.append(death)
        self._requeue(worker, death)
        if worker.ready:
            self._deaths_in_a_row += 1
        else:
            self._failed_starts[worker.index] += 1
        if self._is_hopeless(worker.index):
            words = f"{death}; {worker.last_words()}"
            self._refuse(RunError(f"workers die without getting anything done: {words}"))
            return
        starts = self._failed_starts[worker.index] < _STARTS
        self._report(worker.index, Died(worker.how(code), by_another=starts))
        if starts and self._deadline is None:
            self._start(worker.index, takes_over=True)
        self._feed()

    def _requeue(self, worker: WorkerHandle, death: str) -> None:
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

    def _is_hopeless(self, index: int) -> bool:
        """Too many deaths without a published step; or this worker never starts and nobody can do its steps."""
        never_starts = self._failed_starts[index] >= _STARTS
        return self._deaths_in_a_row > _DEATHS_WITHOUT_PROGRESS or (never_starts and (self._own_partition or not self._workers))

    # -- the end ---------------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.signal is not None:
            self._deadline = 0.0  # a second signal: at once
            return
        self.signal = number
        self.stop()

    def _refuse(self, error: BulkinferError) -> None:
        """Stop, and end the launch with `error`."""
        if self._refusal is None:
            self._refusal = error
            self.stop()

    def stop(self) -> None:
        """No new batches; workers publish what is finished, and are killed when the grace is over. `run` then returns."""
        if self._deadline is None:
            self._deadline = time.monotonic() + STOP_GRACE_S
            for worker in self._workers.values():
                if worker.ready:
                    worker.send(Stop())
                else:
                    worker.process.kill()

    def _kill_all(self) -> None:
        for worker in list(self._workers.values()):
            worker.process.kill()
            self._reap(worker)

    def _reap(self, worker: WorkerHandle) -> int:
        del self._workers[worker.index]
        self._selector.unregister(worker.reports)
        return worker.close()
