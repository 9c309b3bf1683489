"""Is an output directory what its job recorded: every record once, every file unchanged? Needs neither network nor pictures."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inference.entries import add_keys, raw_keys
from inference.errors import BulkinferError, ForeignError, UsageError
from inference.job import JOB_FILE, read_job
from inference.ok_rows import SCHEMA, identities, ok_rows_of
from inference.parts import STAGING, by_partition, is_set_aside, missing_ranges, overlaps, part_name, part_step
from inference.results import Part, listed_steps, read_part
from inference.types import Step, printable

_RUN_AGAIN = "run the job again, it sets the file aside and runs its records anew"
_TOLD = 3  # names of doubled keys


@dataclass
class Verdict:
    """What was found. `faults` are sentences; without any, every record of the job has its row. `notes` are no faults.

    `keys` are digests over the keys of the sound parts of each partition, in order; `ok_rows` are keys and sizes, if asked for.
    """

    job: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    keys: dict[int, Any] = field(default_factory=dict)
    ok_rows: list[pa.Table] | None = None

    @property
    def num_ok(self) -> int:
        return sum(part.num_ok for part in self.parts)

    @property
    def errors_by_stage(self) -> Counter[str]:
        return sum((Counter(part.stages) for part in self.parts), Counter())


def verify(output: Path, *, with_ok_rows: bool = False) -> Verdict:
    """Read every part in full, once, and compare with _job.json.

    Raises UsageError if `output` is no output directory, RunError if its _job.json is damaged.
    """
    job = read_job(output)
    if job is None:
        raise UsageError(f"{output} holds no {JOB_FILE}: give the results folder of a job")
    verdict = Verdict(job, ok_rows=[] if with_ok_rows else None)
    found = listed_steps(output)
    steps = [step for step, is_folder in found.items() if not is_folder]
    verdict.faults += [f"{part_name(step)} is a folder with the name of a part: move it away" for step in found if found[step]]
    verdict.faults += _overlapping(job, steps)
    for step in steps:
        verdict.faults += _check_part(output, step, verdict)
    for name in sorted(set(job["parts"]) - {part_name(step) for step in steps}):
        verdict.faults.append(f"{name} was published, and is gone: run the job again, its records run anew")
    if not overlaps(part.step for part in verdict.parts):  # else there is nothing to add up
        shares = by_partition(part.step for part in verdict.parts)
        for index, expected in sorted((int(index), expected) for index, expected in job["partitions"].items()):
            verdict.faults += _check_partition(verdict, index, expected, shares.get(index, []))
    if verdict.faults:
        verdict.faults += _doubled_keys(output, verdict)
    _look_around(output, verdict)
    return verdict


def _overlapping(job: dict[str, Any], steps: list[Step]) -> Iterator[str]:
    """Parts that hold the same records, and which of two to move away: one that _job.json does not know."""
    for one, other in overlaps(steps):
        unknown = [part_name(step) for step in (one, other) if part_name(step) not in job["parts"]]
        mend = f"move {unknown[0]} away, which {JOB_FILE} does not know" if len(unknown) == 1 else "move one of them away"
        yield f"{part_name(one)} and {part_name(other)} overlap: {mend}, then run the job again"


def _check_part(output: Path, step: Step, verdict: Verdict) -> Iterator[str]:
    """Faults of one file; a sound one goes into the verdict."""
    name = part_name(step)
    if str(step.partition) not in verdict.job["partitions"]:
        yield f"{name} belongs to no partition of the job: move it away"
        return
    try:
        part, table = read_part(output, step, verdict.job["fingerprint"])
    except ForeignError as error:
        yield f"{error}: move it to the output of that job, then run this job again"
        return
    except BulkinferError as error:
        yield f"{error}: {_RUN_AGAIN}"
        return
    recorded = verdict.job["parts"].get(name)
    if recorded is not None and recorded["sha256"] not in (part.sha256, part.replaces):
        changed = f"sha256 {part.sha256[:12]}, recorded {recorded['sha256'][:12]}"
        yield f"{name} was changed after it was published ({changed}): {_RUN_AGAIN}"
        return
    is_as_recorded = recorded is not None and recorded["sha256"] == part.sha256
    if recorded is not None and is_as_recorded and (recorded["ok"], recorded["stages"]) != (part.num_ok, part.stages):
        counts = f"{name} holds other numbers of ok and error rows than {JOB_FILE} counts"
        yield f"{counts}: one of them was changed; remove the part and run the job again"
    verdict.parts.append(part)
    add_keys(verdict.keys.setdefault(step.partition, hashlib.sha256()), table)
    if verdict.ok_rows is not None:
        verdict.ok_rows.append(ok_rows_of(table))


def _check_partition(verdict: Verdict, index: int, expected: dict[str, Any], done: list[Step]) -> Iterator[str]:
    """Missing records of a partition; and where none are missing, whether their keys are those of the manifest, in order."""
    try:
        missing = missing_ranges(index, expected["num_records"], done)
    except BulkinferError as error:
        yield str(error)
        return
    for gap in missing:
        yield f"partition {index}: records {gap.start} to {gap.end} have no row: run the job again to complete it"
    found = verdict.keys.get(index, hashlib.sha256()).hexdigest()
    if not missing and found != expected["keys_sha256"]:
        yield f"partition {index}: the keys of the rows are not those of the manifest: remove its parts and run the job again"


def _doubled_keys(output: Path, verdict: Verdict) -> Iterator[str]:
    """Keys with more than one row in the sound parts of a partition, and where they stand."""
    for steps in by_partition(part.step for part in verdict.parts).values():
        places: dict[bytes, list[str]] = {}
        for step in steps:
            _, table = read_part(output, step, verdict.job["fingerprint"], [])
            for key in raw_keys(table):
                places.setdefault(key, []).append(part_name(step))
        doubled = [(key, names) for key, names in places.items() if len(names) > 1]
        if doubled:
            names = "; ".join(f"{printable(key)} in {' and '.join(where)}" for key, where in doubled[:_TOLD])
            more = f" and {len(doubled) - _TOLD} more" if len(doubled) > _TOLD else ""
            yield f"{len(doubled)} keys have more than one row ({names}{more}): remove those parts and run the job again"


def _look_around(output: Path, verdict: Verdict) -> None:
    """What else lies there: strange tables that readers of the folder would take in, damaged parts, an unfinished retry."""
    for name in sorted(path.name for path in output.iterdir()):
        if name.endswith(".parquet") and not name.startswith(("_", ".")) and part_step(name) is None:
            verdict.faults.append(f"{name} is no part of the job, and whoever reads the folder reads it too: move it away")
        elif name == STAGING:
            verdict.notes.append(
                f"{STAGING} holds rows of a retry that was ended early: bulkinfer retry {output} goes on with it"
            )
    if verdict.faults:
        aside = sorted(path.name for path in output.iterdir() if is_set_aside(path.name))
        verdict.faults += [
            f"{name} was set aside as damaged; once its records have run again it can be removed" for name in aside
        ]


def together(outputs: Sequence[Path], verdicts: Iterable[Verdict]) -> tuple[int, list[str]]:
    """How many different pictures are ok in all outputs, and faults: pictures that are ok in more than one.

    A picture is one key and size; where an output does not know sizes, one key. The verdicts are `with_ok_rows`.
    """
    tables = [pa.concat_tables([SCHEMA.empty_table(), *(verdict.ok_rows or ())]) for verdict in verdicts]
    rows = pa.concat_tables(tables)
    unsized = pc.unique(rows["key"].filter(pc.is_null(rows["size"])))
    known = pc.invert(pc.is_in(rows["key"], value_set=unsized))
    values = identities(rows.set_column(1, "size", pc.if_else(known, rows["size"], pa.scalar(None, pa.int64()))))
    counted = pa.table(pc.value_counts(values).flatten(), ["value", "count"])
    doubled = counted["value"].filter(pc.greater(counted["count"], 1)).to_pylist()
    if not doubled:
        return len(counted), []
    keys = [value.rpartition(b"\0")[0] for value in doubled[:_TOLD]]
    homes = [(output, pc.unique(table["key"])) for output, table in zip(outputs, tables, strict=True)]
    places = []
    for key in keys:
        where = [str(output) for output, there in homes if pc.is_in(pa.scalar(key), value_set=there).as_py()]
        places.append(f"{printable(key)} in {' and '.join(where)}")
    more = f" and {len(doubled) - _TOLD} more" if len(doubled) > _TOLD else ""
    mend = "leave one of the folders out, or run one anew with --overwrite and --skip_done of the others"
    return len(counted), [f"{len(doubled)} pictures are ok in more than one folder ({'; '.join(places)}{more}): {mend}"]
