"""The folder of a run: log.txt, training.csv, validation.csv, arguments.json, checkpoints, TensorBoard events."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from bulkinfer.errors import RunError, UsageError, advising
from bulkinfer.files import lease
from bulkinfer.files.atomic import naming, publishing, safe_name
from bulkinfer.files.guarded import TEXT_BYTES, read_bytes, read_text
from bulkinfer.files.json_file import write_json
from bulkinfer.files.user_path import require_folder_place
from bulkinfer.host.screen import Screen
from bulkinfer.host.status import Pace, Status

log = logging.getLogger("bulkinfer")

TRAINING_COLUMNS = (
    "step",
    "epoch",
    "learning_rate",
    "loss",
    "accuracy",
    "images_per_sec",
    "loss_scale",
    "memory_mb",
    "total_s",
)
_STEP = re.compile(r"\d{1,15}", re.ASCII)
LOCK = "_lock.json"
VALIDATION_COLUMNS = ("name", "step", "epoch", "accuracy", "top5", "loss", "count", "images_per_sec", "seconds", "weights")
# in its column `weights`: those of the network, their average with --ema, or one of several checkpoints
RAW, EMA, AVERAGE = "raw", "ema", "average"


def new_run(log_path: Path, model: str, dataset: str, suffix: str) -> Path:
    """Make logs/<model>-<dataset>-<time>[-suffix], with a number at the end if that exists."""
    stem = safe_name("-".join(filter(None, (model, dataset, f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", suffix))))
    require_folder_place(log_path, "--log_path")
    log_path.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        folder = log_path / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
    raise AssertionError("a thousand runs in one second")


def lock_run(folder: Path) -> lease.Lease:
    """Lock a run's folder until the lease is released. Raises UsageError if another process holds the lock."""
    found = lease.take(folder / LOCK)
    if not isinstance(found, lease.Lease):
        raise UsageError(f"{folder} is being trained by pid {found['pid']} on {found['host']}, since {found['started']}")
    found.keep()
    return found


class Log(Protocol):
    """Where the loop reports to."""

    folder: Path

    def say(self, line: str) -> None:
        """Write a line."""

    def warn(self, line: str) -> None:
        """Write a warning."""

    def advance(self, pictures: int) -> None:
        """Count pictures that were trained on."""

    def training(self, row: dict[str, Any]) -> None:
        """Write the averages over some updates."""

    def validation(self, row: dict[str, Any]) -> None:
        """Write the scores of a validation."""

    def close(self) -> None:
        """End the log."""


class Silence:
    """The log of a replica that is not the first: writes nothing."""

    folder = Path()

    def say(self, line: str) -> None:
        """Nothing."""

    def warn(self, line: str) -> None:
        """Nothing."""

    def advance(self, pictures: int) -> None:
        """Nothing."""

    def training(self, row: dict[str, Any]) -> None:
        """Nothing."""

    def validation(self, row: dict[str, Any]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Run:
    """Writes the log and the tables of a run.

    Files that exist are continued, without their rows after `from_step`, which a resumed run makes again. On a terminal a
    view shows the progress through the `pictures` that are left (None: none). `lock` is released at the end.
    """

    def __init__(
        self,
        folder: Path,
        *,
        from_step: int,
        tensorboard: bool,
        pictures: int | None = None,
        lock: lease.Lease | None = None,
    ) -> None:
        self.folder, self._lock = folder, lock
        self._training = _Table(folder / "training.csv", TRAINING_COLUMNS, from_step)
        self._validation = _Table(folder / "validation.csv", VALIDATION_COLUMNS, from_step)
        path = folder / "log.txt"
        if path.exists() and not path.is_file():  # a named pipe would be waited for
            raise RunError(f"{path} is not a file: move it away, and a new one is begun")
        self._log = path.open("a", buffering=1)
        self._events = _events(folder, from_step) if tensorboard else None
        self._pictures, self._advanced, self._pace = pictures, 0, Pace()
        # without a terminal the lines of the loop show the progress
        self._screen = Screen(self._status, shows_progress=pictures is not None, line_s=math.inf).__enter__()

    def say(self, line: str) -> None:
        """Write a line to the screen and to log.txt."""
        self._screen.line(line)
        self._write(line)

    def warn(self, line: str) -> None:
        """Log a warning, as others of bulkinfer are, and write it to log.txt."""
        log.warning(f"warning: {line}")
        self._write(f"warning: {line}")

    def _write(self, line: str) -> None:
        with naming(self.folder / "log.txt"):
            self._log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")

    def advance(self, pictures: int) -> None:
        """Count pictures that were trained on."""
        self._advanced += pictures

    def _status(self) -> Status:
        done = self._advanced
        return Status(done=done, total=self._pictures, images_per_s=self._pace.add(time.monotonic(), done))

    def training(self, row: dict[str, Any]) -> None:
        """Add a row to training.csv."""
        self._training.add(row)
        self._event("training", row)

    def validation(self, row: dict[str, Any]) -> None:
        """Add a row to validation.csv."""
        self._validation.add(row)
        self._event("validation", row)

    def _event(self, kind: str, row: dict[str, Any]) -> None:
        if self._events is not None:
            for name, value in row.items():
                if isinstance(value, int | float) and name not in ("step", "epoch"):
                    self._events.add_scalar(f"{kind}/{name}", value, row["step"])

    def close(self) -> None:
        """Close all files and the view, and release the lock."""
        self._screen.__exit__(None, None, None)
        try:
            with naming(self.folder / "log.txt"):
                self._log.close()
            if self._events is not None:
                self._events.close()
        finally:
            if self._lock is not None:
                self._lock.release()


class _Table:
    """A CSV file that is complete after every row. Rows after `from_step`, and a row that was cut off, are removed first."""

    def __init__(self, path: Path, columns: tuple[str, ...], from_step: int) -> None:
        kept = [row for row in read_table(path) if int(row["step"]) <= from_step]
        write_table(path, columns, kept)
        self._path, self._columns = path, columns

    def add(self, row: dict[str, Any]) -> None:
        """Append a row. The file is opened by name each time, since `bulkinfer validate` may have replaced it."""
        with naming(self._path), self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow({name: as_text(value) for name, value in row.items()})


def as_text(value: Any) -> str:
    """A value as it is written in a CSV file of a run."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def write_table(path: Path, columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    """Write these rows to a CSV file of a run, unless it holds them already."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    if not path.exists() or read_bytes(path, TEXT_BYTES) != data:
        with publishing(path) as temporary:
            temporary.write_bytes(data)


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of a run, without a last line that was cut off; [] if there is no file."""
    if not path.exists():
        return []
    advice = "it is the table of a run: move it away, and a new one is begun"
    try:
        with advising(advice):
            whole, _, _ = read_text(path, TEXT_BYTES).rpartition("\n")
    except UnicodeDecodeError:
        raise RunError(f"{path} is damaged (it is not text): {advice}") from None
    rows = csv.DictReader(whole.splitlines())
    if path.stat().st_size and "step" not in (rows.fieldnames or ()):  # its rows would be dropped
        raise RunError(f"{path} is damaged (it has no column called step): {advice}")
    return [row for row in rows if None not in row and None not in row.values() and _STEP.fullmatch(row["step"])]


def write_arguments(folder: Path, arguments: dict[str, Any]) -> None:
    """Write arguments.json: the options and the resolved plan. Files of earlier starts of the run stay beside it."""
    path = folder / "arguments.json"
    number = 1
    while path.exists() and number < 1000:
        number += 1
        path = folder / f"arguments-{number}.json"
    write_json(path, arguments)


def memory_mb() -> float:
    """Resident memory of this process, in MB."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _events(folder: Path, from_step: int) -> Any:
    """A TensorBoard writer that hides what earlier files hold after `from_step`."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=from_step + 1 if from_step else None)
