"""Compares two jobs: joins their rows by key, counts what differs, and writes the pictures that changed as files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import publishing
from bulkinfer.files.json_file import write_json
from bulkinfer.files.user_path import real_path
from bulkinfer.insight.accuracy.figures import class_text
from bulkinfer.insight.class_columns import require_classes
from bulkinfer.insight.class_names import ClassNames, classes_of
from bulkinfer.insight.comparison.changes import Answer, Change, Changes, Uncompared
from bulkinfer.insight.comparison.contact_sheet import THUMB, Tile, draw_sheet
from bulkinfer.insight.comparison.join import BUCKET_ROWS, joined
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.insight.output_files import csv_file
from bulkinfer.insight.picture_file import picture_columns, picture_folder
from bulkinfer.insight.thumbnail import ThumbnailReader
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.job_kind import differing_values, effective_identity
from bulkinfer.results.reader import read_results
from bulkinfer.types import key_text

FOLDER = "compare"  # in the log folder of the first job
SHEET = "changed.png"
NAMES = ("compare.json", "changed.csv", "uncompared.csv", SHEET)
_FIRST = ("model_name", "precision", "device", "decode")  # of what differs: what people ask for
_CHANGED = ("key", "class_a", "name_a", "score_a", "class_b", "name_b", "score_b", "drop")
_UNCOMPARED = ("key", "a", "b")


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison: the counts, in which fields the jobs differ (both values), their class names, and the files.

    `num_shown` is how many pictures of the contact sheet could be read; None if there is no sheet.
    """

    changes: Changes
    differences: dict[str, tuple[str, str]]
    names: tuple[ClassNames, ClassNames]
    has_same_names: bool
    files: tuple[Path, ...]
    num_shown: int | None


def compare(one: FoundJob, other: FoundJob, folder: Path, *, data_dir: str = "", bucket_rows: int = BUCKET_ROWS) -> Comparison:
    """Compare two jobs and write the files into `folder`. Memory: two buckets of rows, see join.py.

    Classes are compared by number. Raises UsageError if both are one job, if one keeps no classes, or if no picture has an
    answer in both; RunError for a part that is damaged.
    """
    jobs = [read_results(found.output) for found in (one, other)]
    if real_path(jobs[0].output) == real_path(jobs[1].output):
        raise UsageError(f"both jobs are the one in {jobs[0].output}: name two")
    for job in jobs:
        require_classes(job)
    names = (classes_of(one.job), classes_of(other.job))
    changes, (compare_json, changed_csv, uncompared_csv, sheet) = Changes(), (folder / name for name in NAMES)
    with ExitStack() as stack:
        changed_table = stack.enter_context(csv_file(changed_csv, _CHANGED))
        uncompared_table = stack.enter_context(csv_file(uncompared_csv, _UNCOMPARED))
        for pair in joined(jobs[0], jobs[1], folder, bucket_rows):
            changed, uncompared = changes.add(pair)
            changed_table.writerows(_changed_row(change, names) for change in changed)
            uncompared_table.writerows(map(_uncompared_row, uncompared))
        if not changes.num_compared:
            which = f"{jobs[0].output} and {jobs[1].output} have no picture that is ok in both ({_why_none(changes)})"
            raise UsageError(f"{which}: give two jobs over the same pictures")
    files = [compare_json, changed_csv, uncompared_csv]
    differences = job_differences(one.job, other.job)
    write_json(compare_json, _as_json(one, other, changes, differences))
    num_shown = _write_sheet(sheet, one.job, changes, names, data_dir)
    is_same = one.job.identity.get("labels_sha256") == other.job.identity.get("labels_sha256")
    return Comparison(changes, differences, names, is_same, (*files, *([sheet] if num_shown else [])), num_shown)


def job_differences(one: JobFile, other: JobFile) -> dict[str, tuple[str, str]]:
    """In what two jobs differ, with what `auto` became: model, precision, device and decoding first, then all else."""
    found = differing_values(*(effective_identity(job.identity, job.resolved) for job in (one, other)))
    if "manifest" in found:
        found["pictures"] = found.pop("manifest")
    found |= {f"version of {name}": values for name, values in differing_values(one.versions, other.versions).items()}
    ordered = sorted(found, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return {name: (_word(found[name][0]), _word(found[name][1])) for name in ordered}


def _word(value: str) -> str:
    """A value of an identity, which is shortened JSON, in words."""
    return "none" if value == "null" else value.strip('"')


def _changed_row(change: Change, names: tuple[ClassNames, ClassNames]) -> tuple[Any, ...]:
    one, other = change.one, change.other
    return (key_text(change.key), one.number, names[0].name(one.number), one.score,
            other.number, names[1].name(other.number), other.score, change.drop)  # fmt: skip


def _uncompared_row(row: Uncompared) -> tuple[str, ...]:
    return key_text(row.key), row.one, row.other


def _why_none(changes: Changes) -> str:
    if changes.only_one and changes.only_other:
        return f"their keys differ, such as {changes.first_only_one[0]} and {changes.first_only_other[0]}"
    return "they have error rows or no rows"


def _as_json(one: FoundJob, other: FoundJob, changes: Changes, differences: dict[str, tuple[str, str]]) -> dict[str, Any]:
    mean = changes.drift_sum / changes.num_drift if changes.num_drift else None
    return {
        "a": {"output": str(one.output), "fingerprint": one.job.fingerprint},
        "b": {"output": str(other.output), "fingerprint": other.job.fingerprint},
        "differences": {name: list(values) for name, values in differences.items()},
        "compared": changes.num_compared, "same": changes.same, "changed": changes.changed, "agreement": changes.agreement,
        "drift": {"rows": changes.num_drift, "mean": mean, "largest": changes.drift_largest, "key": changes.drift_key},
        "errors": {"in_a": changes.error_in_one, "in_b": changes.error_in_other, "in_both": changes.error_in_both},
        "only_in_a": changes.only_one, "only_in_b": changes.only_other,
    }  # fmt: skip


def _write_sheet(path: Path, job: JobFile, changes: Changes, names: tuple[ClassNames, ClassNames], data_dir: str) -> int | None:
    """Draw the pictures that changed most; returns how many could be read. Without any, or without changes, no file is left."""
    path.unlink(missing_ok=True)  # of an earlier comparison
    if not changes.most:
        return None
    folder = picture_folder(job.config, data_dir)
    reader = ThumbnailReader(folder, job.identity, THUMB, picture_columns(job.config))
    sheet, num_read = draw_sheet([*_tiles(changes, names)], reader)
    if num_read:
        with publishing(path) as temporary:
            sheet.save(temporary, "PNG")
    return num_read


def _tiles(changes: Changes, names: tuple[ClassNames, ClassNames]) -> Iterator[Tile]:
    for change in changes.most_changed():
        answers = [f"{side}: {answer_text(answer, each)}" for side, answer, each in zip("AB", change[3:], names, strict=True)]
        yield Tile(change.key, change.partition, (key_text(change.key), *answers))


def answer_text(answer: Answer, names: ClassNames) -> str:
    """An answer in words: number and name of the class, and its score."""
    return f"{class_text(answer.number, names.name(answer.number))} {answer.score:.3f}"
