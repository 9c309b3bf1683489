"""The interface between a launch and the engine that runs its workers; the table of engines is config.ENGINES."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bulkinfer.config import ENGINES
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.host.cores import CoreBudget, HostPlan, ThreadPlan
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Event, Refused


class Hooks(Protocol):
    """What an engine asks of the launch, and reports to it."""

    def make_steps(self, rate: float, num_workers: int) -> list[Step]:
        """What is to run on so many workers; asked once, with the warm-up rate of the first one in pictures per second (0: not
        measured).
        """

    def most_records(self) -> int:
        """The most records of a step that is handed out now: what make_steps returned is cut to this length."""

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        """Called with every event; `busy_workers` still have something to finish. An error that is returned ends the launch.

        There may be thousands of them: what is done at each event must not look at all.
        """

    def on_progress(self, worker: int, pictures: int) -> None:
        """Called often: so many pictures have their rows in this process of the worker, which may not be published yet."""

    def must_stop(self) -> BulkinferError | None:
        """Why the launch must end although nothing was reported; asked every few seconds."""

    def is_published(self, step: Step) -> bool:
        """True if the part of `step` is published."""


class Engine(Protocol):
    """Starts workers and gets every step published."""

    @property
    def signal(self) -> int | None:
        """The signal that ended the run early."""

    @property
    def replaced(self) -> list[str]:
        """Sentences about workers that died."""

    @property
    def nodes(self) -> dict[str, ThreadPlan]:
        """The plans of other hosts that ran workers, by the names of these; empty: this host alone did, by the plan given."""

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker or a hook refused with."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine is asked for, apart from the plan of this host.

    With `own_partition` worker i only gets the steps of partition i. A worker process that has work and makes no progress for
    `stall_timeout_s` seconds is ended and replaced; 0: never. The others are for engines of several hosts: `num_devices` is the
    number of workers, 0: all that there is room for; `plan_host` gives the workers of another host that has these cores and so
    many GPUs for them, None: it has no room for any.
    """

    batch_size: int
    own_partition: bool = False
    stall_timeout_s: float = 0.0
    num_devices: int = 0
    ray_address: str = ""
    plan_host: Callable[[CoreBudget, int], HostPlan | None] | None = None


def make_engine(name: str, run_file: Path, plan: ThreadPlan, hooks: Hooks, options: EngineOptions) -> Engine:
    """The engine called `name`; `plan` is that of this host."""
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)(run_file, plan, hooks, options)
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
