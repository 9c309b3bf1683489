"""status.json: how far a launch has come, for other processes and hosts. It lies beside each lock of the launch.

It is renewed every few seconds, so it is not fsynced: after a power cut it may be empty, and the lock shows that nobody runs.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, cast

from bulkinfer.errors import DamagedError
from bulkinfer.files.json_validation import mismatch
from bulkinfer.host.status import Status, WorkerStatus
from bulkinfer.results.control_files import control_exists, read_control, show_control
from bulkinfer.types import printable_path

STATUS_FILE = "status.json"


class Launcher(TypedDict):
    """Who runs the job, and where it works. `start_ticks` is None where the system does not say it."""

    job: str
    command: str
    host: str
    pid: int
    start_ticks: int | None
    started: str
    log_dir: str
    output: str | None


class _Worker(TypedDict):
    state: str
    pictures: int


class _Content(Launcher):
    """All fields of the file; the other ones are those of Status."""

    updated: str
    state: str
    done: int
    total: int | None
    percent: float
    images_per_s: float
    left_s: float | None
    errors: dict[str, int]
    workers: dict[str, _Worker]
    waiting_for_pictures: float | None
    waiting_for_device: float | None
    exit_code: int | None


@dataclass(frozen=True)
class StatusReport:
    """The content of a status.json; `exit_code` is None while the launch runs. `age_s` is by the clock of this host."""

    launcher: Launcher
    status: Status
    exit_code: int | None
    age_s: float


def write_status(folder: Path, launcher: Launcher, status: Status, exit_code: int | None = None) -> None:
    """Publish status.json in `folder`."""
    content: dict[str, Any] = {
        **launcher,
        "updated": utc_text(time.time()),
        **asdict(status),
        "percent": status.percent,
        "left_s": None if status.left_s is None else round(status.left_s, 1),
        "exit_code": exit_code,
    }
    show_control(folder / STATUS_FILE, content)


def read_status(folder: Path) -> StatusReport | None:
    """The content of status.json in `folder`; None if there is none. Raises DamagedError, or UsageError if it is newer."""
    path = folder / STATUS_FILE
    try:
        if not control_exists(path):
            return None
        found, _, age_s = read_control(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if fault := mismatch(found, _Content):
        raise DamagedError(f"{printable_path(path)} is damaged ({fault})")
    content = cast(_Content, found)
    workers = {int(number): WorkerStatus(one["state"], one["pictures"]) for number, one in content["workers"].items()}
    status = Status(**{**{known.name: found[known.name] for known in fields(Status)}, "workers": workers})
    launcher = cast(Launcher, {name: found[name] for name in Launcher.__annotations__})
    return StatusReport(launcher, status, content["exit_code"], age_s)


def utc_text(seconds: float) -> str:
    """A time of time.time() as text."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
