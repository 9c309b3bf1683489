"""The interface between a launch and the engine that runs its workers; the table of engines is config.ENGINES."""

from __future__ import annotations

import importlib
import signal
import threading
from pathlib import Path
from typing import Protocol

from bulkinfer.config import ENGINES
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Event, Refused


class Hooks(Protocol):
    """What an engine asks of the launch, and reports to it."""

    def make_steps(self, rate: float) -> list[Step]:
        """What is to run; asked once, with the warm-up rate of the first worker in pictures per second (0: not measured)."""

    def most_records(self) -> int:
        """The most records of a step that is handed out now: what make_steps returned is cut to this length."""

    def on_event(self, worker: int, event: Event, busy_workers: list[int]) -> BulkinferError | None:
        """Called with every event; `busy_workers` still have something to finish. An error that is returned ends the launch."""

    def on_progress(self, worker: int, pictures: int) -> None:
        """Called often: so many pictures have their rows in this process of the worker, which may not be published yet."""

    def must_stop(self) -> BulkinferError | None:
        """Why the launch must end although nothing was reported; asked every few seconds."""

    def is_published(self, step: Step) -> bool:
        """True if the part of `step` is published."""


class Engine(Protocol):
    """Starts workers and gets every step published."""

    signal: int | None  # the signal that ended the run early
    replaced: list[str]  # sentences about workers that died

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker or a hook refused with."""


def make_engine(
    name: str,
    run_file: Path,
    plan: ThreadPlan,
    hooks: Hooks,
    *,
    batch_size: int,
    own_partition: bool,
    stall_timeout_s: float,
) -> Engine:
    """The engine called `name`. With `own_partition` worker i only gets the steps of partition i.

    A worker process that has work and makes no progress for `stall_timeout_s` seconds is ended and replaced; 0: never.
    """
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)(
        run_file, plan, hooks, batch_size=batch_size, own_partition=own_partition, stall_timeout_s=stall_timeout_s
    )
    return engine


def refusal(event: Refused, *, started: bool) -> BulkinferError:
    """The error that a worker's refusal is for the user; wrong use (exit 2) only if nothing has been done yet."""
    return UsageError(event.message) if event.exit_code == UsageError.exit_code and not started else RunError(event.message)


def signals_to_handle() -> list[signal.Signals]:
    """The signals that end a launch. None outside the main thread, where Python delivers them; one that is ignored, as SIGHUP
    under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
