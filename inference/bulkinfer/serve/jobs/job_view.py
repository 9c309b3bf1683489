"""A job as its user sees it: what the queue knows, and how far its launcher has come."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, error_sentence
from bulkinfer.files.own_folder import own_folder
from bulkinfer.insight.watch import job_status
from bulkinfer.serve.jobs.folders import RESULTS, job_folder
from bulkinfer.serve.jobs.job_queue import ENDED, Job

_HIDDEN = ("number", "user", "deaths")
_SHOWN = ("state", "done", "total", "percent", "images_per_s", "left_s", "errors")


def job_view(job: Job, folder: Path) -> dict[str, Any]:
    """The job as JSON; `progress` is that of `bulkinfer watch`, None before its first launch."""
    shown = {name: value for name, value in asdict(job).items() if name not in _HIDDEN}
    has_ended = job.state in ENDED
    return {**shown, "has_ended": has_ended, "progress": _progress(job_folder(folder, job.id) / RESULTS, has_ended)}


def _progress(output: Path, has_ended: bool) -> dict[str, Any] | None:
    """What its launcher has written; of a job that has ended with a killed launcher, its rows are counted."""
    place = own_folder(output)
    if not place.is_dir():
        return None
    try:
        status = job_status(place, counts_rows=has_ended).status
    except (BulkinferError, OSError) as error:
        return {"state": "unknown", "reason": error_sentence(error)} if output.is_dir() else None
    return {name: getattr(status, name) for name in _SHOWN}
