"""Checks that a results folder is what its job recorded: every record once, every file unchanged. Needs no pictures."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import BulkinferError, ForeignError
from bulkinfer.files.addresses import place_path
from bulkinfer.files.own_folder import own_folder
from bulkinfer.files.user_path import user_path
from bulkinfer.records.manifest_rows import add_keys
from bulkinfer.results.find_output import find_output, require_job
from bulkinfer.results.job_file import JOB_FILE, JobFile, PartitionEntry
from bulkinfer.results.ok_rows import large_keys, ok_rows_of
from bulkinfer.results.output_locks import launcher_in
from bulkinfer.results.output_store import output_store, require_bucket
from bulkinfer.results.parquet_parts import Part, listed_steps, read_part
from bulkinfer.results.part_names import STAGING, by_partition, is_set_aside, missing_ranges, overlaps, part_name, part_step
from bulkinfer.results.shard_set import ShardSet, read_shard_set
from bulkinfer.types import Step, printable, shell_word

_RUN_AGAIN = "run the job again, it sets the file aside and runs its records again"
NAMED = 3  # of many things, which a message names


@dataclass
class Verdict:
    """What was found. `faults` are sentences; if there are none, every record of the job has its row. `notes` are no faults.

    `to_run` are the jobs, or shards of one job, whose launch mends some of the faults, or has to follow what they ask for.
    `keys` are digests over the keys of the sound parts of each partition, in order. `ok_rows` are the keys and sizes of the ok
    rows; None unless they were asked for.
    """

    job: JobFile
    parts: list[Part] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    to_run: list[JobFile] = field(default_factory=list)
    keys: dict[int, Any] = field(default_factory=dict)
    ok_rows: list[pa.Table] | None = None

    @property
    def num_ok(self) -> int:
        return sum(part.num_ok for part in self.parts)

    @property
    def errors_by_stage(self) -> Counter[str]:
        return sum((Counter(part.stages) for part in self.parts), Counter())

    def add_faults(self, *faults: str, run_again: bool = False) -> None:
        """Add sentences. `run_again`: they say that the job has to be run again."""
        self.faults += faults
        if faults and run_again and self.job not in self.to_run:
            self.to_run.append(self.job)


def verify(output: str | os.PathLike[str], *, with_ok_rows: bool = False) -> Verdict:
    """Read every part in full, once, and compare with _job.json.

    Keys alone are read again of a partition whose parts overlap, or hold all its records under other keys than the manifest's.
    A folder of shards is checked as one job. Raises UsageError if `output` is no results folder, RunError if its _job.json is
    damaged.
    """
    folder = place_path(user_path(output, "output"))
    require_bucket(folder, "")
    if (shards := read_shard_set(folder)) is not None:
        return _verify_shards(shards, with_ok_rows)
    return _verify_output(find_output(folder), with_ok_rows)


def _verify_shards(shards: ShardSet, with_ok_rows: bool) -> Verdict:
    """The verdict of the whole job; its sentences name the shards."""
    verdict = Verdict(shards.job, ok_rows=[] if with_ok_rows else None)
    for shard in shards:
        output, name = shards.output(shard), shard.folder
        if not output_store(output).is_there():
            verdict.faults.append(f"{name} is not there: run infer_launch of that shard")
            continue
        try:
            found = _verify_output(output, with_ok_rows)
        except BulkinferError as error:
            verdict.faults.append(f"{error}")
            continue
        if fault := shards.fault_of(shard, found.job):
            verdict.faults.append(f"{name} {fault}")
            continue
        verdict.parts += found.parts
        verdict.faults += [f"{name}: {fault}" for fault in found.faults]
        verdict.notes += [f"{name}: {note}" for note in found.notes]
        verdict.to_run += found.to_run
        if verdict.ok_rows is not None:
            verdict.ok_rows += found.ok_rows or []
    return verdict


def _verify_output(output: Path, with_ok_rows: bool) -> Verdict:
    job = require_job(output)
    verdict = Verdict(job, ok_rows=[] if with_ok_rows else None)
    launcher = launcher_in(output)
    if launcher:
        verdict.notes.append(f"{launcher} is at work on it: what is missing may still come, verify it again after that")
    found = listed_steps(output)
    steps = [step for step, is_folder in found.items() if not is_folder]
    verdict.faults += [f"{part_name(step)} is a folder with the name of a part: move it away" for step in found if found[step]]
    verdict.add_faults(*_overlapping(job, steps), run_again=True)
    for step in steps:
        _check_part(output, step, verdict)
    for name in sorted(set(job.parts) - {part_name(step) for step in steps}):
        verdict.add_faults(f"{name} was published, and is gone: run the job again, its records run again", run_again=True)
    shares = by_partition(part.step for part in verdict.parts)
    mixed = {one.partition for one, _ in overlaps(part.step for part in verdict.parts)}  # their records cannot be added up
    ranges = job.ranges()
    for index, expected in sorted(job.partitions.items()):
        if index not in mixed:
            is_whole = _check_records(ranges[index], shares.get(index, []), verdict, is_at_work=bool(launcher))
            mixed |= {index} if is_whole and _has_wrong_keys(verdict, index, expected) else set()
    for index in sorted(mixed):
        verdict.add_faults(*_doubled_keys(output, job.fingerprint, shares.get(index, [])), run_again=True)
    _check_rest(output, verdict)
    return verdict


def _overlapping(job: JobFile, steps: list[Step]) -> Iterator[str]:
    """Parts that hold the same records, and which of two to move away: one that _job.json does not know."""
    for one, other in overlaps(steps):
        unknown = [part_name(step) for step in (one, other) if part_name(step) not in job.parts]
        advice = f"move {unknown[0]} away, which {JOB_FILE} does not know" if len(unknown) == 1 else "move one of them away"
        yield f"{part_name(one)} and {part_name(other)} overlap: {advice}, then run the job again"


def _check_part(output: Path, step: Step, verdict: Verdict) -> None:
    """Add one file to the verdict: its faults, or a sound part."""
    name = part_name(step)
    if step.partition not in verdict.job.partitions:
        verdict.add_faults(f"{name} belongs to no partition of the job: move it away")
        return
    try:
        part, table = read_part(output, step, verdict.job.fingerprint)
    except ForeignError as error:
        verdict.add_faults(f"{error}: move it to the results folder of that job, then run this job again", run_again=True)
        return
    except BulkinferError as error:
        verdict.add_faults(f"{error}: {_RUN_AGAIN}", run_again=True)
        return
    recorded = verdict.job.parts.get(name)
    if recorded is not None and recorded["sha256"] not in (part.sha256, part.replaces):
        changed = f"sha256 {part.sha256[:12]}, recorded {recorded['sha256'][:12]}"
        verdict.add_faults(f"{name} was changed after it was published ({changed}): {_RUN_AGAIN}", run_again=True)
        return
    is_as_recorded = recorded is not None and recorded["sha256"] == part.sha256
    if recorded is not None and is_as_recorded and (recorded["ok"], recorded["stages"]) != (part.num_ok, part.stages):
        counts = f"{name} holds other numbers of ok and error rows than {JOB_FILE} counts"
        verdict.add_faults(f"{counts}: one of them was changed; remove the part and run the job again", run_again=True)
    verdict.parts.append(part)
    add_keys(verdict.keys.setdefault(step.partition, hashlib.sha256()), table)
    if verdict.ok_rows is not None:
        verdict.ok_rows.append(ok_rows_of(table))


def _check_records(wanted: list[Step], done: list[Step], verdict: Verdict, *, is_at_work: bool) -> bool:
    """True if the sound parts hold all records of a partition; else faults say which are missing, and what to do."""
    try:
        missing = missing_ranges(wanted, done)
    except BulkinferError as error:
        verdict.add_faults(str(error))
        return False
    todo = "wait for the launcher" if is_at_work else "run the job again to complete it"
    gaps = [f"partition {gap.partition}: records {gap.start} to {gap.end} have no row: {todo}" for gap in missing]
    verdict.add_faults(*gaps, run_again=not is_at_work)
    return not gaps


def _has_wrong_keys(verdict: Verdict, index: int, expected: PartitionEntry) -> bool:
    """True, with a fault, if the keys of a partition that has all its rows are not those of the manifest, in order."""
    if verdict.keys.get(index, hashlib.sha256()).hexdigest() == expected["keys_sha256"]:
        return False
    wrong = f"partition {index}: the keys of the rows are not those of the manifest"
    verdict.add_faults(f"{wrong}: remove its parts and run the job again", run_again=True)
    return True


def _doubled_keys(output: Path, fingerprint: str, steps: list[Step]) -> Iterator[str]:
    """Keys with more than one row in the sound parts of a partition, and where the first of them stand."""
    columns = {part_name(step): large_keys(read_part(output, step, fingerprint, [])[1]) for step in steps}
    every = pa.chunked_array([chunk for keys in columns.values() for chunk in keys.chunks], pa.large_binary())
    doubled = repeated(pc.value_counts(every))
    if not len(doubled):
        return
    named = []
    for key in doubled[:NAMED]:
        where = [name for name, keys in columns.items() for _ in range(pc.sum(pc.equal(keys, key)).as_py() or 0)]
        named.append(f"{printable(key.as_py())} in {' and '.join(where)}")
    what = "1 key has" if len(doubled) == 1 else f"{len(doubled)} keys have"
    yield f"{what} more than one row ({name_some(named, len(doubled))}): remove those parts and run the job again"


def name_some(names: Sequence[str], count: int = 0) -> str:
    """The first names in words, as "a; b; c and 4 more"; `count` is how many there are, where `names` has only the first."""
    more = max(count, len(names)) - NAMED
    return "; ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def repeated(counted: pa.StructArray) -> pa.Array:
    """The values that occur more than once, out of what value_counts gave."""
    return counted.field("values").filter(pc.greater(counted.field("counts"), 1))


def _check_rest(output: Path, verdict: Verdict) -> None:
    """Report the other files: tables that readers of the folder would read too, damaged parts, an unfinished retry."""
    for name in foreign_files(output):
        verdict.faults.append(f"{name} is no part of the job, but programs that read the folder read it too: move it away")
    for folder in dict.fromkeys((output, own_folder(output))):
        if output_store(folder / STAGING).is_there():
            rest = f"bulkinfer retry {shell_word(output)} goes on with it"
            verdict.notes.append(f"{folder / STAGING} holds rows of a retry that was ended early: {rest}")
    if verdict.faults:
        folders = dict.fromkeys((output, own_folder(output)))
        aside = sorted(folder / name for folder in folders for name in output_store(folder).entries() if is_set_aside(name))
        verdict.faults += [
            f"{path} was set aside as damaged; once its records have run again it can be removed" for path in aside
        ]


def foreign_files(output: Path) -> Iterator[str]:
    """Files that readers of Parquet data sets would read beside the parts."""
    return (name for name in output_store(output).readable_files() if not part_step(name))
