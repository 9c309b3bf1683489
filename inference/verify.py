"""Is an output directory what its job recorded: every record once, every file unchanged? Needs neither network nor pictures."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.entries import add_keys
from inference.errors import BulkinferError, UsageError
from inference.job import JOB_FILE, read_job
from inference.results import Part, by_partition, is_set_aside, missing_ranges, part_name, published_steps, read_part
from inference.types import Step


@dataclass
class Verdict:
    """What was found. `faults` are sentences; without any, every record of the job has its row.

    `keys` are digests over the keys of the sound parts of each partition, in order.
    """

    job: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    keys: dict[int, Any] = field(default_factory=dict)

    @property
    def num_ok(self) -> int:
        return sum(part.num_ok for part in self.parts)

    @property
    def errors_by_stage(self) -> Counter[str]:
        return sum((Counter(part.stages) for part in self.parts), Counter())


def verify(output: Path) -> Verdict:
    """Read every part in full, once, and compare with _job.json.

    Raises UsageError if `output` is no output directory, RunError if its _job.json is damaged.
    """
    job = read_job(output)
    if job is None:
        raise UsageError(f"{output} holds no {JOB_FILE}: give the results folder of a job")
    verdict = Verdict(job)
    try:
        steps = published_steps(output)
    except BulkinferError as error:
        verdict.faults.append(str(error))
        return verdict
    for step in steps:
        verdict.faults += _check_part(output, step, verdict)
    for name in sorted(set(job["parts"]) - {part_name(step) for step in steps}):
        verdict.faults.append(f"{name} was published, and is gone: run the job again, its records run anew")
    shares = by_partition(part.step for part in verdict.parts)
    for index, expected in sorted((int(index), expected) for index, expected in job["partitions"].items()):
        verdict.faults += _check_partition(verdict, index, expected, shares.get(index, []))
    if verdict.faults:
        aside = sorted(path.name for path in output.iterdir() if is_set_aside(path.name))
        verdict.faults += [
            f"{name} was set aside as damaged; once its records have run again it can be removed" for name in aside
        ]
    return verdict


def _check_part(output: Path, step: Step, verdict: Verdict) -> Iterator[str]:
    """Faults of one file; a sound one goes into the verdict."""
    name = part_name(step)
    if str(step.partition) not in verdict.job["partitions"]:
        yield f"{name} belongs to no partition of the job: move it away"
        return
    try:
        part, table = read_part(output, step, verdict.job["fingerprint"])
    except BulkinferError as error:
        yield f"{error}: run the job again, it sets the file aside and runs its records anew"
        return
    recorded = verdict.job["parts"].get(name)
    if recorded is not None and recorded["sha256"] != part.sha256:
        yield f"{name} was changed after it was published (sha256 {part.sha256[:12]}, recorded {recorded['sha256'][:12]})"
        return
    if recorded is not None and (recorded["ok"], recorded["stages"]) != (part.num_ok, part.stages):
        yield f"{name} holds other numbers of ok and error rows than {JOB_FILE} counts: one of them was changed"
    verdict.parts.append(part)
    add_keys(verdict.keys.setdefault(step.partition, hashlib.sha256()), table)


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
