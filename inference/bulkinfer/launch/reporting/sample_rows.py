"""What the end of a launch shows of the rows: some ok rows, and the first error rows."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import BulkinferError, escaped
from bulkinfer.results.answers import ANSWER_COLUMNS, class_texts, num_ranked, ranked, score_texts
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import read_part
from bulkinfer.results.part_names import part_name, part_step
from bulkinfer.types import Step

log = logging.getLogger("bulkinfer")

_NUM_OK, _NUM_ERRORS = 5, 3
_MOST_KEY = 60  # characters: of a longer key the end is shown
_MOST_BYTES = 64 << 20  # of the part that is read for ok rows; saved outputs can make gigabytes of one


def error_lines(output: Path, job: JobFile) -> list[str]:
    """The first error rows, one a line: stage, key, message. Reads only parts that hold error rows."""
    found = list[str]()
    for step in _steps(job):
        if len(found) == _NUM_ERRORS:
            break
        if job.parts[part_name(step)]["stages"] and (table := _read(output, step, job, "key", "stage", "error")) is not None:
            rows = table.filter(pc.is_valid(table["stage"])).slice(0, _NUM_ERRORS - len(found)).to_pylist()
            found += [f"  {row['stage']}: {escaped(row['key'])}: {escaped(row['error'])}" for row in rows]
    return found


def ok_lines(output: Path, job: JobFile) -> list[str]:
    """The first ok rows, one a line: key, score and name of the best class. Reads one part, and no large one."""
    with_ok = [step for step in _steps(job) if job.parts[part_name(step)]["ok"]]
    small = next((step for step in with_ok if _size_bytes(output, part_name(step)) <= _MOST_BYTES), None)
    if small is None or (table := _read(output, small, job, "key", "stage", *ANSWER_COLUMNS)) is None:
        return []
    rows = table.filter(pc.is_null(table["stage"])).slice(0, _NUM_OK)
    keys = [_short(key) for key in rows["key"].to_pylist()]
    if not num_ranked(rows):  # other columns were saved
        return [f"  {key}" for key in keys]
    best, width = ranked(rows, 0), max(map(len, keys))
    answers = zip(keys, score_texts(best), class_texts(best), strict=True)
    return [f"  {key:<{width}}  {score}  {escaped(name)}" for key, score, name in answers]


def _short(key: str) -> str:
    text = escaped(key)
    return text if len(text) <= _MOST_KEY else f"…{text[1 - _MOST_KEY :]}"


def _steps(job: JobFile) -> list[Step]:
    return sorted(step for name in job.parts if (step := part_step(name)) is not None)


def _size_bytes(output: Path, name: str) -> float:
    size = output_store(output).size_bytes(name)
    return math.inf if size is None else size


def _read(output: Path, step: Step, job: JobFile, *columns: str) -> pa.Table | None:
    """The rows of a part; None, after a warning, if it cannot be read: the job is done, and verify says what is wrong."""
    try:
        return read_part(output, step, job.fingerprint, columns, use_threads=False)[1]
    except (BulkinferError, OSError) as error:
        log.warning(f"warning: no rows are shown: {error}")
        return None
