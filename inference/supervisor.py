"""Start, feed, watch and replace the workers of one launch."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.cores import ThreadPlan
from inference.errors import RunError
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

    def send(self, **message: Any) -> None:
        """One message; a worker that is just dying does not read it, and its end of file is on its way."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            return

    def close(self) -> int:
        """Close our ends of the pipes and reap the process; returns its exit code (negative: the signal)."""
        os.close(self.reports)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait()


class Supervisor:
    """Runs all steps on `plan.num_devices` workers; a dead worker is replaced and its unpublished steps run again.

    `make_steps(rate)` is called once, with the warm-up rate of the first worker that is ready. `on_event(index, event)` sees
    every report. `is_published(step)` tells whether a dead worker's step got its file. With `own_partition` worker i only gets
    the steps of partition i.
    """

    def __init__(
        self,
        run_file: Path,
        plan: ThreadPlan,
        *,
        batch_size: int,
        make_steps: Callable[[float], list[Step]],
        on_event: Callable[[int, dict[str, Any]], None],
        is_published: Callable[[Step], bool],
        own_partition: bool,
    ) -> None:
        self._run_file, self._plan, self._batch_size = run_file, plan, batch_size
        self._make_steps, self._on_event, self._own_partition = make_steps, on_event, own_partition
        self._is_published = is_published
        self._queue: StepQueue | None = None
        self._killers: deque[tuple[Step, str]] = deque()  # with what ended the last process that touched it
        self._workers: dict[int, WorkerHandle] = {}
        self._selector = selectors.DefaultSelector()
        self._deaths_in_a_row = 0  # of workers that had been ready, since a step was last published
        self._failed_starts: Counter[int] = Counter()  # in a row, by worker
        self._deadline: float | None = None
        self.signal: int | None = None
        self.refusal: RunError | None = None
        self.replaced: list[str] = []

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker refused with."""
        waking, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(waking, selectors.EVENT_READ)
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        signal.set_wakeup_fd(wake)
        try:
            for index in range(self._plan.num_devices):
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
        if self.refusal:
            raise self.refusal

    def busy_workers(self) -> list[int]:
        """Workers that still have something to finish, or are about to get something."""
        return [worker.index for worker in self._workers.values() if worker.held or not worker.ready]

    def refuse(self, error: RunError) -> None:
        """Stop, and end the launch with `error`."""
        if self.refusal is None:
            self.refusal = error
            self._stop()

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

    def _read(self, worker: WorkerHandle) -> None:
        """Take what a worker reports; end of file means that it is dead or done."""
        chunk = os.read(worker.reports, 1 << 16)
        *lines, worker.unread = (worker.unread + chunk).split(b"\n")
        for line in lines:
            self._handle(worker, json.loads(line))
        if not chunk:
            self._gone(worker)

    def _handle(self, worker: WorkerHandle, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            worker.ready = True
            self._failed_starts[worker.index] = 0
            if self._queue is None:
                self._queue = StepQueue.of(self._make_steps(event["warm_up_rate"]))
        elif event["event"] == "step":
            worker.held.remove(Step(*event["step"]))
            self._deaths_in_a_row = 0
        elif event["event"] == "refused":
            error = RunError(event["message"])
            error.exit_code = event["exit_code"]
            self.refuse(error)
        self._on_event(worker.index, event)
        self._feed()

    def _feed(self) -> None:
        """Give every ready worker its running step first and then its next one; end them all when all is published."""
        if self._queue is None or self._deadline is not None:
            return
        ready = [worker for worker in self._workers.values() if worker.ready]
        for holding in (0, 1):
            for worker in ready:
                if len(worker.held) != holding:
                    continue
                if not worker.held and self._killers:
                    step, death = self._killers.popleft()
                    worker.held.append(step)
                    why = f"every process that touched this record died; the last: {death}"
                    worker.send(killer=[step.partition, step.start, step.end], message=why)
                    continue
                only = worker.index if self._own_partition else None
                if (found := self._queue.take(worker.held, only_partition=only)) is not None:
                    worker.held.append(found)
                    worker.send(step=[found.partition, found.start, found.end])
        if not self._queue.pending and not self._killers and not any(worker.held for worker in self._workers.values()):
            for worker in ready:
                if not worker.ended:
                    worker.ended = True
                    worker.send(end=True)

    def _gone(self, worker: WorkerHandle) -> None:
        """A worker's pipe closed: it has ended, or it died and is replaced."""
        code = self._reap(worker)
        if self._deadline is not None or (code == 0 and worker.ended):
            return
        death = f"worker {worker.index} ended by {_how(code)}"
        self.replaced.append(death)
        if self._queue is not None:
            # a part may be published and its report lost with the worker
            held = [step for step in worker.held if not self._is_published(step)]
            self._killers.extend((step, death) for step in self._queue.give_back(held, self._batch_size))
        if worker.ready:
            self._deaths_in_a_row += 1
        else:
            self._failed_starts[worker.index] += 1
        if self._is_hopeless(worker.index):
            words = f"{death}; the end of its log: {self._last_words(worker.index)}"
            self.refuse(RunError(f"workers die without getting anything done: {words}"))
            return
        starts = self._failed_starts[worker.index] < _STARTS
        self._on_event(worker.index, {"event": "replaced", "how": _how(code), "by_another": starts})
        if starts:
            self._start(worker.index)
        self._feed()

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
        self._stop()

    def _stop(self) -> None:
        """No new batches; workers publish what is finished, and are killed when the grace is over."""
        if self._deadline is None:
            self._deadline = time.monotonic() + STOP_GRACE_S
            for worker in self._workers.values():
                worker.send(stop=True)

    def _kill_all(self) -> None:
        for worker in list(self._workers.values()):
            worker.process.kill()
            self._reap(worker)

    def _reap(self, worker: WorkerHandle) -> int:
        del self._workers[worker.index]
        self._selector.unregister(worker.reports)
        return worker.close()
