"""The engine of one host: start, feed, watch and replace one worker process per device."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.cores import ThreadPlan
from inference.engine import Hooks, refusal
from inference.errors import BulkinferError, RunError
from inference.messages import (
    STOP_SIGNALS,
    Command,
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
    encode,
)
from inference.steps import StepQueue
from inference.types import Step

STOP_GRACE_S = 4.0  # after a signal: time to publish what is finished; all children are gone within 5 s
_DEATHS_WITHOUT_PROGRESS = 32  # bisecting the largest step takes 3 + log2(1500 x batch) deaths
_STARTS = 3  # a worker that dies so often before it is ready is not started again


def _how(code: int) -> str:
    """What ended a process, by the code that Popen gives."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal has no name
        return f"signal {-code}"


@dataclass
class WorkerHandle:
    """A running worker process and what it was given."""

    index: int
    process: subprocess.Popen[bytes]
    reports: int  # our end of its pipe
    ready: bool = False
    ended: bool = False  # told that nothing more will come
    held: list[Step] = field(default_factory=list)
    unread: bytes = b""

    def send(self, command: Command) -> None:
        """One command; a worker that is just dying does not read it, and its end of file is on its way."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(encode(command).encode() + b"\n")
        except BrokenPipeError:
            return

    def close(self) -> int:
        """Close our ends of the pipes and reap the process; returns its exit code (negative: the signal)."""
        os.close(self.reports)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait()


class LocalEngine:
    """Runs all steps on `plan.num_devices` processes; a dead one is replaced and its unpublished steps run again."""

    def __init__(self, run_file: Path, plan: ThreadPlan, hooks: Hooks, *, batch_size: int, own_partition: bool) -> None:
        self._run_file, self._plan, self._hooks = run_file, plan, hooks
        self._batch_size, self._own_partition = batch_size, own_partition
        self._queue: StepQueue | None = None
        self._killers: deque[tuple[Step, str]] = deque()  # with what ended the last process that touched it
        self._workers: dict[int, WorkerHandle] = {}
        self._selector = selectors.DefaultSelector()
        self._deaths_in_a_row = 0  # of workers that had been ready, since a step was last published
        self._failed_starts: Counter[int] = Counter()  # in a row, by worker
        self._deadline: float | None = None
        self._refusal: BulkinferError | None = None
        self._started = False  # a step was published
        self.signal: int | None = None
        self.replaced: list[str] = []

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker or a hook refused with."""
        waking, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(waking, selectors.EVENT_READ)
        # under nohup SIGHUP is ignored, and stays so
        handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in handled}
        signal.set_wakeup_fd(wake)
        try:
            for index in range(self._plan.num_devices):
                if self._deadline is None:
                    self._start(index)
            while self._workers:
                wait_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
                for key, _ in self._selector.select(wait_s):
                    if key.data is None:
                        os.read(waking, 64)
                    else:
                        self._read(key.data)
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._kill_all()
        finally:
            self._kill_all()
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(waking)
            os.close(wake)
            self._selector.close()
        if self._refusal:
            raise self._refusal

    # -- processes -------------------------------------------------------------------------------------------------------

    def _start(self, index: int) -> None:
        """Start worker `index` with its cores fixed: a child inherits the affinity of the thread that starts it."""
        log = Path(self._run_file).parent / f"worker-{index}.log"
        ours, theirs = os.pipe()
        everyone = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._plan.affinity[index])
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "inference.worker_process", str(self._run_file), str(index), str(theirs)],
                    stdin=subprocess.PIPE, bufsize=0, stdout=output, stderr=output, pass_fds=[theirs], start_new_session=True,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                )  # fmt: skip
        finally:
            os.sched_setaffinity(0, everyone)
            os.close(theirs)
        worker = WorkerHandle(index, process, ours)
        self._workers[index] = worker
        self._selector.register(ours, selectors.EVENT_READ, worker)
        if self._deadline is not None:  # a signal came while it was being started
            process.kill()

    def _read(self, worker: WorkerHandle) -> None:
        """Take what a worker reports; end of file means that it is dead or done."""
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
        self._tell(worker.index, event)
        if isinstance(event, Ready) and self._queue is None and self._deadline is None:
            self._queue = StepQueue.of(self._hooks.make_steps(event.warm_up_rate))
        self._feed()

    def _tell(self, index: int, event: Event) -> None:
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
                if not worker.ready:  # it would load its network for nothing
                    worker.process.kill()

    def _next(self, worker: WorkerHandle, queue: StepQueue) -> RunStep | None:
        """What this worker can take on now."""
        if self._killers and not worker.held:
            step, death = self._killers.popleft()
            return RunStep(step, fault=f"every process that touched this record died; the last: {death}")
        step_or_none = queue.take(worker.held, only_partition=worker.index if self._own_partition else None)
        return None if step_or_none is None else RunStep(step_or_none)

    def _gone(self, worker: WorkerHandle) -> None:
        """A worker's pipe closed: it has ended, or it died and is replaced."""
        code = self._reap(worker)
        death = f"worker {worker.index} ended by {_how(code)}"
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
            words = f"{death}; the end of its log: {self._last_words(worker.index)}"
            self._refuse(RunError(f"workers die without getting anything done: {words}"))
            return
        starts = self._failed_starts[worker.index] < _STARTS
        self._tell(worker.index, Died(_how(code), by_another=starts))
        if starts and self._deadline is None:
            self._start(worker.index)
        self._feed()

    def _requeue(self, worker: WorkerHandle, death: str) -> None:
        """The steps of a dead worker run again, unless a part is published and only its report was lost with the worker."""
        if self._queue is None:
            return
        for step in [step for step in worker.held if self._hooks.is_published(step)]:
            worker.held.remove(step)
            self._tell(worker.index, Recovered(step))
        self._killers.extend((step, death) for step in self._queue.give_back(worker.held, self._batch_size))

    def _is_hopeless(self, index: int) -> bool:
        """Too many deaths without a published step; or this worker never starts and nobody can do its steps."""
        never_starts = self._failed_starts[index] >= _STARTS
        return self._deaths_in_a_row > _DEATHS_WITHOUT_PROGRESS or (never_starts and (self._own_partition or not self._workers))

    def _last_words(self, index: int) -> str:
        log = Path(self._run_file).parent / f"worker-{index}.log"
        return " | ".join(log.read_text(errors="replace").splitlines()[-3:])

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
