"""Starts the ranks of a run on this host, with torch's launcher, and ends them together."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.host.stop_signals import STOP_SIGNALS, Stopped
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import solve
from bulkinfer.train.ranks.world import find_starter

_ENDING_S = 86_400  # for the update at work and for saving, after a signal; a second signal ends the ranks at once
_HANDLED = "TORCHELASTIC_SIGNALS_TO_HANDLE"  # a variable that torch's launcher sets
_CLOSED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # of a rank that the launcher ended, since another failed, before it began
_STOPPING = "stopping"  # a file beside the options of the ranks


@dataclass(frozen=True, slots=True)
class Ending:
    """How a rank ended: its exit code, negative for a signal, and when, in seconds.

    `sentence` is what the command would end with. `is_lost` says that it failed since another rank had ended, `is_stopped` that
    a signal ended it in order.
    """

    rank: int
    code: int
    time: float
    sentence: str = ""
    advice: str = ""
    is_lost: bool = False
    is_stopped: bool = False


def ranks_to_start(config: TrainConfig) -> int:
    """How many ranks the options ask for that nobody has started; 0 if this process is to train."""
    if config.dry_run or find_starter() is not None:
        return 0
    sizes = (config.micro_batch_size, config.gradient_accumulation, config.replicas, config.global_batch_size)
    count = solve(*sizes, default_micro_batch=128).replicas * config.stages
    return count if count > 1 else 0


def start_ranks(config: TrainConfig, count: int, *, shows_progress: bool) -> dict[str, Any]:
    """Train with `count` ranks on this host; returns the fields of the first one's TrainResult.

    A stop signal is passed on to all of them. Raises the error of the rank that failed first, Stopped if a signal ended them
    before they had a result.
    """
    with tempfile.TemporaryDirectory(prefix="bulkinfer-ranks-") as folder:
        options = Path(folder, "options.json")
        write_json(options, {"config": asdict(config), "shows_progress": shows_progress}, is_durable=False)
        number, endings = _launch(count, folder, "-P", "-m", "bulkinfer.train.ranks.process", str(os.getpid()), str(options))
        replies = {int(path.parent.name): read_json(path) for path in Path(folder).glob("**/error.json")}
    endings = [each for each in endings if each.rank not in replies]
    endings += [Ending(rank, **reply["ending"]) for rank, reply in replies.items() if "ending" in reply]
    if cause := cause_of(endings):
        raise error_of(cause, endings)
    if "result" not in replies.get(0, {}):
        raise Stopped(number or signal.SIGTERM)
    result: dict[str, Any] = replies[0]["result"]
    return result


def cause_of(endings: Sequence[Ending]) -> Ending | None:
    """The rank that failed first; None if none failed but those that signals had ended, or that lost these."""
    failed = [ending for ending in endings if not ending.is_stopped]
    real = [ending for ending in failed if not ending.is_lost]
    is_stop = len(failed) < len(endings)
    return min(real or ([] if is_stop else failed), key=lambda ending: ending.time, default=None)


def error_of(cause: Ending, endings: Sequence[Ending]) -> Exception:
    """The error that the command ends with."""
    if cause.sentence:
        return (UsageError if cause.code == UsageError.exit_code else RunError)(cause.sentence)
    if cause.code > 0:
        return RunError(f"rank {cause.rank} failed with exit code {cause.code}: the lines before say why")
    advice = next((ending.advice for ending in endings if ending.advice), "")
    reason = ", which is what a system does that lacks memory" if cause.code == -signal.SIGKILL else ""
    return RunError(f"rank {cause.rank} was ended by signal {-cause.code} ({signal.Signals(-cause.code).name}){reason}{advice}")


def is_stopping(options: Path) -> bool:
    """True if a signal stops the ranks that have these options: torch's launcher ends ranks with one, too, when one fails."""
    return options.with_name(_STOPPING).exists()


def _launch(count: int, folder: str, *words: str) -> tuple[int, list[Ending]]:
    """Run `python WORDS` as ranks; returns the number of the signal that stopped them, or 0, and the ranks that failed."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    def stop(number: int, _frame: FrameType | None) -> None:
        Path(folder, _STOPPING).touch()
        raise SignalException(f"signal {number}", signal.Signals(number))

    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=Path(folder).name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
        signals_to_handle="",  # its handlers would leave no file
        shutdown_timeout=_ENDING_S,
    )
    with _silent(), _signals_go_to(stop):
        try:
            elastic_launch(launch, sys.executable)(*words)
        except ChildFailedError as error:
            return 0, [
                Ending(rank, found.exitcode, found.timestamp, is_lost=found.exitcode in _CLOSED)
                for rank, found in error.failures.items()
            ]
        except SignalException as error:
            return int(error.sigval), []
    return 0, []


@contextmanager
def _silent() -> Iterator[None]:
    """Drop what torch's launcher logs until the block ends: it is reported otherwise."""
    loggers = [logging.getLogger(name) for name in ("torch.distributed.elastic", "torch.distributed.launcher")]
    nowhere = logging.NullHandler()
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(nowhere)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagates in zip(loggers, before, strict=True):
            logger.removeHandler(nowhere)
            logger.propagate = propagates


@contextmanager
def _signals_go_to(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that are not ignored until the block ends, when the variable of torch's launcher is as before, too."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    variable = os.environ.get(_HANDLED)
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.environ.pop(_HANDLED, None)
        if variable is not None:
            os.environ[_HANDLED] = variable
