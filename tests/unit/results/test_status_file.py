"""status_file.py: what is written is read, and what is damaged is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.host.status import RUNNING, Status, WorkerStatus
from bulkinfer.results.status_file import STATUS_FILE, Launcher, read_status, utc_text, write_status

from tests.sealed import edited

LAUNCHER = Launcher(
    job="tiny-0123abcd", command="infer_launch", host="here", pid=4711, start_ticks=12, started="2026-11-29T12:00:00Z",
    log_dir="/logs/tiny-0123abcd", output=None,
)  # fmt: skip
STATUS = Status(
    done=5, total=10, images_per_s=2.5, errors={"read": 1}, workers={0: WorkerStatus(RUNNING, 5), 11: WorkerStatus("ended", 0)},
    waiting_for_pictures=0.5,
)  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    write_status(tmp_path, LAUNCHER, STATUS)
    found = read_status(tmp_path)
    assert found is not None
    assert (found.launcher, found.status, found.exit_code) == (LAUNCHER, STATUS, None)
    assert os.listdir(tmp_path) == [STATUS_FILE]
    content = json.loads((tmp_path / STATUS_FILE).read_text())
    assert (content["percent"], content["left_s"]) == (50.0, 2.0)


def test_its_age_is_that_of_the_file(tmp_path: Path) -> None:
    write_status(tmp_path, LAUNCHER, STATUS, 3)
    stat = (tmp_path / STATUS_FILE).stat()
    os.utime(tmp_path / STATUS_FILE, (stat.st_mtime - 1000,) * 2)
    found = read_status(tmp_path)
    assert found is not None
    assert found.age_s >= 1000
    assert found.exit_code == 3


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / STATUS_FILE
    path.touch()
    with pytest.raises(DamagedError, match=r"status\.json is damaged"):
        read_status(tmp_path)
    write_status(tmp_path, LAUNCHER, STATUS)
    path.write_text(path.read_text().replace('"done": 5', '"done": 6'))
    with pytest.raises(DamagedError, match="does not match its checksum"):
        read_status(tmp_path)
    write_status(tmp_path, LAUNCHER, STATUS)
    edited(path, lambda content: content.update(workers={"0": {"state": 1, "pictures": 2}}))
    with pytest.raises(DamagedError, match=r"workers\.0\.state is 1, not str"):
        read_status(tmp_path)
    path.write_text('{"format": 99}')
    with pytest.raises(UsageError, match="install a newer bulkinfer"):
        read_status(tmp_path)


def test_times_are_in_utc() -> None:
    assert utc_text(0.0) == "1970-01-01T00:00:00Z"
