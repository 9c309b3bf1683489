"""The rows that a job has published, as its files say it: one count for all commands that show jobs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bulkinfer.errors import BulkinferError
from bulkinfer.files.addresses import AddressPath, place_path
from bulkinfer.files.own_folder import own_folder
from bulkinfer.files.user_path import real_path
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.log_folder import recorded_output
from bulkinfer.results.parquet_parts import count_stages, listed_steps
from bulkinfer.results.part_names import part_name
from bulkinfer.results.status_file import StatusReport


class Published(NamedTuple):
    """How many of `total` rows are published, and how many of them are error rows, by stage."""

    rows: int
    total: int
    errors: dict[str, int]

    @property
    def num_errors(self) -> int:
        return sum(self.errors.values())


def published_rows(output: Path, job: JobFile) -> Published:
    """Count the rows in `output`. Error rows in a damaged part are not known: the next launch sets it aside.

    _job.json counts them at the end of a launch. The parts of a launch that was killed are read for it.
    """
    errors, steps = Counter[str](), listed_steps(output)
    for step in steps:
        if (recorded := job.parts.get(part_name(step))) is not None:
            errors.update(recorded["stages"])
        else:
            with suppress(BulkinferError):
                errors.update(count_stages(output, step))
    return Published(sum(map(len, steps)), job.num_records, dict(errors))


def published_by(folder: Path, report: StatusReport) -> Published | None:
    """The same of the job whose log folder or own folder has `report`; None if it has no output, or that cannot be read."""
    output, written = None if isinstance(folder, AddressPath) else recorded_output(folder), report.launcher["output"]
    if output is None and written is not None and real_path(own_folder(place_path(written))) == real_path(folder):
        output = place_path(written)
    if output is None:
        return None
    try:
        job = JobFile.read(output)
    except BulkinferError:
        return None
    return None if job is None else published_rows(output, job)
