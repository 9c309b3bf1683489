"""The log folder of merged results: commands that write about a job put their files there, and `bulkinfer jobs` lists it."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from pathlib import Path

from bulkinfer.errors import RunError, error_sentence
from bulkinfer.files.json_file import write_json
from bulkinfer.files.latest_link import point_latest
from bulkinfer.files.own_folder import own_folder
from bulkinfer.host.process_identity import process_start_ticks
from bulkinfer.host.status import FINISHED, Status
from bulkinfer.launch.jobs.begun_config import begun_config
from bulkinfer.launch.reporting.summary import rows_as_json
from bulkinfer.results.job_file import JOB_FILE, JobFile, job_path
from bulkinfer.results.log_folder import SUMMARY_FILE, dated, find_log_dir, job_name, take_log_dir
from bulkinfer.results.status_file import Launcher, utc_text, write_status

log = logging.getLogger("bulkinfer")


def keep_log(job: JobFile, output: Path, exit_code: int, began_s: float) -> None:
    """Make the log folder of merged results beside those of the shards, unless there is one.

    `began_s` is when the merge began, by time.time(). The rows are complete without it: what fails is a warning.
    """
    name = job_name(job.model_name, job.fingerprint)
    try:
        log_path = Path(begun_config(job, output).log_path)
        if (there := find_log_dir(log_path, name, job.fingerprint, output)) is not None and (there / SUMMARY_FILE).exists():
            return
        log_dir = take_log_dir(dated(log_path, name), name, job.fingerprint, output)
        _write(log_dir, job, output, exit_code, began_s)
        point_latest(log_dir)
    except (OSError, RunError) as error:
        log.warning(f"warning: the merged results get no log folder: {error_sentence(error)}")


def _write(log_dir: Path, job: JobFile, output: Path, exit_code: int, began_s: float) -> None:
    """What a launch leaves there, as far as a merge has it. summary.json is the last: without it the folder is made again."""
    shutil.copyfile(job_path(output), log_dir / JOB_FILE)
    counts = job.count_rows()
    launcher = Launcher(
        job=log_dir.name,
        command="bulkinfer merge",
        host=socket.gethostname(),
        pid=os.getpid(),
        start_ticks=process_start_ticks(os.getpid()),
        started=utc_text(began_s),
        log_dir=str(log_dir.absolute()),
        output=str(output.absolute()),
    )
    status = Status(FINISHED, counts.ok + counts.errors, job.num_records, errors=counts.errors_by_stage)
    for folder in (log_dir, own_folder(output)):
        write_status(folder, launcher, status, exit_code)
    summary = {
        "job": log_dir.name,
        "fingerprint": job.fingerprint,
        "exit_code": exit_code,
        "refusal": None,
        "records": job.num_records,
        **rows_as_json(counts),
        "output": str(output),
        "running_s": time.time() - began_s,
    }
    write_json(log_dir / SUMMARY_FILE, summary)
