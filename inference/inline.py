"""The engine without child processes: one worker inside the launcher, for debuggers, profilers and tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference.errors import RunError
from inference.paths import read_json
from inference.types import Step
from inference.worker_process import Worker, serve


class InlineEngine:
    """Runs all steps in this process, on the same main path; has the face of a Supervisor."""

    def __init__(
        self, run_file: Path, *, make_steps: Callable[[float], list[Step]], on_event: Callable[[int, dict[str, Any]], None]
    ) -> None:
        self._run_file, self._make_steps, self._on_event = run_file, make_steps, on_event
        self._log = (run_file.parent / "worker-0.log").open("a", buffering=1)
        self._worker = Worker(read_json(run_file), 0, report=self._report, say=lambda text: print(text, file=self._log))
        self.signal: int | None = None
        self.refusal: RunError | None = None
        self.replaced: list[str] = []

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what the worker refused with."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            serve(self._worker)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._log.close()
        if self.refusal:
            raise self.refusal

    def busy_workers(self) -> list[int]:
        """The one worker."""
        return [0]

    def refuse(self, error: RunError) -> None:
        """Stop, and end the launch with `error`."""
        if self.refusal is None:
            self.refusal = error
            self._worker.stop()

    def _report(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self._on_event(0, event)
            for step in self._make_steps(event["warm_up_rate"]):
                self._worker.feed.put(step)
            self._worker.feed.close()
            return
        if event["event"] == "refused":
            self.refusal = RunError(event["message"])
            self.refusal.exit_code = event["exit_code"]
        self._on_event(0, event)

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # a second signal: at once
        self.signal = number
        self._worker.stop()
