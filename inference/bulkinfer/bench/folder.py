"""The log folder of a bench: it appears for the measurements, and stays only if they came to their end."""

from __future__ import annotations

import logging
import platform
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bulkinfer.bench.measurement import StoppedError, ignore_stop_signals, stopped_by
from bulkinfer.bench.options import BenchConfig
from bulkinfer.files.atomic import remove_abandoned, write_owner_file
from bulkinfer.files.latest_link import point_latest
from bulkinfer.files.user_path import require_folder_place
from bulkinfer.host.cores import CoreBudget
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.host.versions import processor, versions

log = logging.getLogger("bulkinfer")

BENCH_FILE = "bench.json"


@contextmanager
def measured_in(log_dir: Path) -> Iterator[None]:
    """The folder is there for the block, and afterwards unless the block was stopped; logs/latest points to it then."""
    require_folder_place(log_dir.parent, "--log_path")
    for left in remove_abandoned(log_dir.parent, "bench-*", keep_with=BENCH_FILE):
        log.info(f"removed {log_dir.parent / left}, which a bench that was killed left behind")
    try:
        log_dir.mkdir(parents=True)
        owner = write_owner_file(log_dir)
        try:
            yield
        finally:
            owner.unlink()
        point_latest(log_dir)  # not sooner: what is stopped leaves no folder
    except (KeyboardInterrupt, StoppedError):
        ignore_stop_signals()
        shutil.rmtree(log_dir, ignore_errors=True)
        raise


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """A signal ends the block with StoppedError; while workers run, the engine handles it, and ends them first.

    Only the first signal counts: the way out is short. Inside the block it is a KeyboardInterrupt: code that goes on after
    the failure of a file or a device must not go on after a signal.
    """
    came: list[int] = []

    def end(number: int, _frame: Any) -> None:
        ignore_stop_signals()
        came.append(number)
        raise KeyboardInterrupt

    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup
    before = {number: signal.signal(number, end) for number in handled}
    try:
        yield
    except KeyboardInterrupt:
        raise stopped_by(came[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def machine_conditions(config: BenchConfig, budget: CoreBudget) -> dict[str, Any]:
    """What the figures of every bench depend on: command, time, machine, versions, options."""
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "hardware": {
            "host": platform.node(),
            "processor": processor(),
            "usable_cores": budget.usable,
            "cores": asdict(budget),
        },
        "system": platform.platform(),
        "versions": versions(),
        "config": asdict(config),
    }
