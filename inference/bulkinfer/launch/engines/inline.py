"""The engine without child processes: one worker inside the launcher, for debuggers, profilers and tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.engines import EngineOptions, Hooks, refusal, signals_to_handle
from bulkinfer.launch.step_queue import StepQueue
from bulkinfer.types import Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.process import Worker
from bulkinfer.worker.protocol import End, Event, Ready, Refused, RunSpec, RunStep, StepDone, Stop


class InlineEngine:
    """Runs all steps in this process, on the same main path."""

    def __init__(self, run_file: Path, plan: ThreadPlan, hooks: Hooks, options: EngineOptions) -> None:
        assert plan.num_devices == 1, plan
        del options  # there is one worker, in this process: it cannot be ended or replaced
        self._hooks = hooks
        self._log = (run_file.parent / "worker-0.log").open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
        spec = RunSpec.read(run_file)
        in_flight = InFlight(spec.num_workers, spec.session.streams)
        self._worker = Worker(spec, 0, report=self._report, say=lambda text: print(text, file=self._log), in_flight=in_flight)
        self._queue: StepQueue | None = None
        self._held: list[Step] = []
        self._refusal: BulkinferError | None = None
        self._started = False
        self.signal: int | None = None
        self.replaced: list[str] = []

    @property
    def nodes(self) -> dict[str, ThreadPlan]:
        """See Engine."""
        return {}

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what the worker or a hook refused with."""
        before = {number: signal.signal(number, self._on_signal) for number in signals_to_handle()}
        try:
            self._worker.serve()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._log.close()
        if self._refusal:
            raise self._refusal

    def _report(self, event: Event) -> None:
        self._started = self._started or isinstance(event, StepDone)
        if isinstance(event, Refused):
            self._refuse(refusal(event, started=self._started))
        elif (reason := self._hooks.on_event(0, event, [0]) or self._hooks.must_stop()) is not None:
            self._refuse(reason)
        if isinstance(event, Ready):
            self._queue = StepQueue.of(self._hooks.make_steps(event.warm_up_rate, 1))
            self._feed(self._queue)
        elif isinstance(event, StepDone) and self._queue is not None:
            self._held.remove(event.step)
            self._feed(self._queue)

    def _feed(self, queue: StepQueue) -> None:
        """Give the worker its running step and the next one, or end it."""
        while (step := queue.take(self._held, most_records=self._hooks.most_records())) is not None:
            self._held.append(step)
            self._worker.take(RunStep(step))
        if not self._held:
            self._worker.take(End())

    def _refuse(self, error: BulkinferError) -> None:
        if self._refusal is None:
            self._refusal = error
            self._worker.take(Stop())

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # a second signal: at once
        self.signal = number
        self._worker.take(Stop())
