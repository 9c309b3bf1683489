"""How far a job has come, by its status.json and its lock: what `bulkinfer watch` shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.own_folder import own_folder
from bulkinfer.host.number_text import duration_text
from bulkinfer.host.status import FAILED, FINISHED, KILLED, RUNNING, STARTING, STOPPED, Status, line_of
from bulkinfer.insight.published import published_by
from bulkinfer.results.control_files import control_exists
from bulkinfer.results.job_place import newest, place_of
from bulkinfer.results.log_folder import RESULTS
from bulkinfer.results.output_locks import living_holder
from bulkinfer.results.shard_set import refuse_shard_set
from bulkinfer.results.status_file import STATUS_FILE, StatusReport, read_status
from bulkinfer.types import printable_path

EXIT_RUNNING = 4
_LATE_S = 15.0  # a launcher renews its status every 2 s
_ENDS = (FINISHED, STOPPED, FAILED, KILLED)
_CODES = (0, 1, 3)  # exit codes of a finished job


@dataclass(frozen=True)
class JobStatus:
    """The status of a job, and the report that it is from (None: there is none yet)."""

    status: Status
    report: StatusReport | None

    @property
    def has_ended(self) -> bool:
        """True if no launcher works at the job."""
        return self.status.state in _ENDS

    @property
    def exit_code(self) -> int:
        """That of the job, 1 for one that was stopped or killed, or left no known code, or 4 while it runs."""
        if not self.has_ended:
            return EXIT_RUNNING
        code = self.report.exit_code if self.report is not None else None
        return code if code in _CODES and self.status.state == FINISHED else 1

    @property
    def heading(self) -> list[str]:
        """The job, who runs it since when, and that no news came for a while."""
        if self.report is None:
            return []
        who, age_s = self.report.launcher, self.report.age_s
        late = [f"no news for {duration_text(math.ceil(age_s))}"] if self.status.state == RUNNING and age_s > _LATE_S else []
        return [f"{who['job']}: {self.status.state}", f"{who['command']} on {who['host']}, pid {who['pid']}", *late]

    @property
    def line(self) -> str:
        """All of it as one line."""
        return f"{self.report.launcher['job']}: {line_of(self.status)}" if self.report else line_of(self.status)


def job_status(folder: Path, *, counts_rows: bool = True) -> JobStatus:
    """The status of the job whose lock and status.json lie in `folder`.

    A launcher is running while it holds the lock. One that holds none, and has not written that it ended, was killed.
    Then, if it `counts_rows`, the parts are read for the rows that are published; else the numbers are the last ones written.
    Raises UsageError if neither file is there.
    """
    holder = living_holder(folder)  # before the status: a launcher writes its last status while it holds the lock
    try:
        report = read_status(folder)
    except DamagedError:  # a power cut may leave an empty one: the lock says the rest
        report = None
    if report is None and holder is None:
        raise UsageError(f"{printable_path(folder)} holds no {STATUS_FILE}: name a job by its results or log folder")
    if report is None:
        return JobStatus(Status(state=STARTING), None)
    who = report.launcher
    if holder is not None and (holder["pid"], holder["start_ticks"]) != (who["pid"], who["start_ticks"]):
        return JobStatus(
            replace(report.status, state=STARTING, images_per_s=0.0, workers={}), report
        )  # that of an earlier launch
    if holder is None and report.status.state == RUNNING and living_holder(folder) is None:  # none has begun meanwhile
        return JobStatus(_killed(folder, report, counts_rows), report)
    return JobStatus(report.status, report)


def _killed(folder: Path, report: StatusReport, counts_rows: bool) -> Status:
    """What a launch that was killed has left: rows that it did not publish are not done."""
    status = replace(report.status, state=KILLED, images_per_s=0.0)
    if not counts_rows or (found := published_by(folder, report)) is None:
        return status
    return replace(status, done=found.rows, total=found.total, errors=found.errors)


def find_watched(word: str, log_path: str) -> Path:
    """The folder with the status of the job that `word` names: its results, its log folder, or its name below `log_path`.

    Without a word that of the newest job, as find_job has it. Raises UsageError if there is none.
    """
    given = place_of(word, log_path) if word else newest(log_path)
    places = [given, own_folder(given)]
    if given.name == RESULTS:  # of a job with --output it was never made
        places.append(given.parent)
    for place in places:
        if control_exists(place / STATUS_FILE) or living_holder(place) is not None:
            return place
    refuse_shard_set(given)
    raise UsageError(f"{printable_path(given)} has no {STATUS_FILE}: name a job by its results or log folder")
