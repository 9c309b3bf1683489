"""The files of a folder of jobs: jobs.toml, the queue, the lock of the service, and a folder for each job that has begun."""

from __future__ import annotations

from pathlib import Path

QUEUE_FILE = "jobs.sqlite"
RESULTS, LOGS = "results", "logs"  # of a job: --output and --log_path of its launcher
LOG_FILE, ERRORS_FILE = "launcher.log", "errors.log"  # what its launchers print


def job_folder(folder: Path, job_id: str) -> Path:
    """The folder of one job."""
    return folder / "jobs" / job_id
