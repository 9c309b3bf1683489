"""The engine of one host: start, watch and replace one worker process per device."""

from __future__ import annotations

import os
import selectors
import time
from pathlib import Path

from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.engines import EngineOptions, Hooks
from bulkinfer.launch.engines.dispatch import Dispatcher
from bulkinfer.launch.engines.waking import Waking, waking_on_signals
from bulkinfer.launch.engines.worker_handle import WorkerHandle, start_worker
from bulkinfer.worker.protocol import decode

_LOOK_S = 1.0  # between two looks at how far the workers are, and two questions to the launch whether it may go on


class LocalEngine:
    """Runs all steps on `plan.num_devices` processes; a dead one is replaced and its unpublished steps run again."""

    def __init__(self, run_file: Path, plan: ThreadPlan, hooks: Hooks, options: EngineOptions) -> None:
        self._run_file, self._plan, self._hooks = run_file, plan, hooks
        self._stall_timeout_s = options.stall_timeout_s
        self._dispatcher = Dispatcher(
            hooks, plan.num_devices, batch_size=options.batch_size, own_partition=options.own_partition
        )
        self._workers: dict[int, WorkerHandle] = {}
        self._selector = selectors.DefaultSelector()
        self._looked_at = time.monotonic()

    @property
    def signal(self) -> int | None:
        """See Engine."""
        return self._dispatcher.signal

    @property
    def replaced(self) -> list[str]:
        """See Engine."""
        return self._dispatcher.replaced

    @property
    def nodes(self) -> dict[str, ThreadPlan]:
        """See Engine."""
        return {}

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker or a hook refused with."""
        with waking_on_signals(self._dispatcher.on_signal) as waking:
            self._selector.register(waking.descriptor, selectors.EVENT_READ)
            try:
                for index in range(self._plan.num_devices):
                    if self._dispatcher.deadline is None:
                        self._start(index, takes_over=False)
                self._wait(waking)
            finally:
                self._kill_all()
                self._selector.close()
        if self._dispatcher.refusal:
            raise self._dispatcher.refusal

    def stop(self) -> None:
        """End the run early: no new batches, workers publish what is finished, and are killed when the grace is over."""
        self._dispatcher.stop()

    def _wait(self, waking: Waking) -> None:
        """Take what the workers report until all have ended."""
        while self._workers:
            for key, _ in self._selector.select(self._wait_s()):
                if key.data is None:
                    waking.clear()
                else:
                    self._read(key.data)
            now = time.monotonic()
            if (deadline := self._dispatcher.deadline) is not None:
                if now >= deadline:
                    self._kill_all()
            elif now - self._looked_at >= self._interval_s:
                self._look(now)

    @property
    def _interval_s(self) -> float:
        """Seconds between two looks at the workers: it is too much to do at each report."""
        return min(_LOOK_S, self._stall_timeout_s / 16) if self._stall_timeout_s else _LOOK_S

    def _wait_s(self) -> float:
        """Seconds until something must be checked, unless a worker reports or a signal comes."""
        due, now = self._dispatcher.deadline, time.monotonic()
        return max(0.0, (self._looked_at + self._interval_s if due is None else due) - now)

    def _look(self, now: float) -> None:
        """Report how far the workers are, and end those that had work and made no progress for too long.

        Time in which this process was stopped is left out.
        """
        watched_s = min(now - self._looked_at, self._stall_timeout_s / 8)
        self._looked_at = now
        for worker in self._workers.values():
            self._hooks.on_progress(worker.index, worker.in_flight.finished())
            if self._stall_timeout_s and worker.is_stalled(watched_s, self._stall_timeout_s) and not worker.ended_for:
                worker.end(f"ended for making no progress in {self._stall_timeout_s:g} s")
        if (reason := self._hooks.must_stop()) is not None:
            self._dispatcher.refuse(reason)

    # -- processes -------------------------------------------------------------------------------------------------------

    def _start(self, index: int, *, takes_over: bool) -> None:
        worker = start_worker(self._run_file, index, self._plan, self._plan.affinity[index], takes_over=takes_over)
        self._workers[index] = worker
        self._selector.register(worker.reports, selectors.EVENT_READ, worker)
        self._dispatcher.add(worker)

    def _read(self, worker: WorkerHandle) -> None:
        """Read what a worker reports; end of file means that it is dead or done."""
        chunk = os.read(worker.reports, 1 << 16)
        for line in worker.lines(chunk):
            self._dispatcher.handle(worker, decode(line))
        if not chunk:
            code = self._reap(worker)
            if self._dispatcher.lost(worker, worker.how(code), is_clean=code == 0):
                self._start(worker.index, takes_over=True)

    def _kill_all(self) -> None:
        for worker in list(self._workers.values()):
            worker.kill()
            self._reap(worker)

    def _reap(self, worker: WorkerHandle) -> int:
        del self._workers[worker.index]
        self._selector.unregister(worker.reports)
        return worker.close()
