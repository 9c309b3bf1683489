"""A job as its user sees it."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.host.status import FINISHED, Status
from bulkinfer.results.status_file import STATUS_FILE, write_status
from bulkinfer.serve.jobs.folders import job_folder
from bulkinfer.serve.jobs.job_queue import Job
from bulkinfer.serve.jobs.job_view import job_view

JOB = Job(1, "abc", "ann", {"limit": 1}, "running", False, 2, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", None, None, "")
FIELDS = {
    "id",
    "options",
    "state",
    "is_cancel_asked",
    "submitted",
    "started",
    "ended",
    "exit_code",
    "reason",
    "has_ended",
    "progress",
}


def test_before_the_first_launch(tmp_path: Path) -> None:
    shown = job_view(JOB, tmp_path)
    assert {*shown} == FIELDS
    assert (shown["id"], shown["progress"], shown["has_ended"]) == ("abc", None, False)


def test_the_status_of_its_launcher(tmp_path: Path) -> None:
    place = job_folder(tmp_path, "abc") / ".results.bulkinfer"
    place.mkdir(parents=True)
    who = {
        "job": "tiny-1",
        "command": "infer_launch",
        "host": "here",
        "pid": 1,
        "start_ticks": 1,
        "started": "",
        "log_dir": "",
        "output": None,
    }
    write_status(place, who, Status(state=FINISHED, done=3, total=4, errors={"decode": 1}), 3)  # type: ignore[arg-type]
    assert job_view(JOB, tmp_path)["progress"] == {
        "state": "finished", "done": 3, "total": 4, "percent": 75.0, "images_per_s": 0.0, "left_s": None,
        "errors": {"decode": 1},
    }  # fmt: skip
    (place / STATUS_FILE).write_text("{}")
    assert job_view(JOB, tmp_path)["progress"] is None
