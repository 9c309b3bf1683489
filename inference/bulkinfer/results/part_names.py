"""Names of parts, and the records that they stand for: which parts overlap, and which records are missing.

A part is part-<partition>-<first record>-<end>.parquet. Names that start with `_` are files of bulkinfer that are not parts.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from bulkinfer.errors import RunError
from bulkinfer.types import Step

STAGING = "_retry"  # in the own folder of an output: rows of a retry that are not in its parts yet
DAMAGED_SUFFIX = ".damaged"
_PART_NAME = re.compile(r"part-(\d{5,})-(\d{10,})-(\d{10,})\.parquet", re.ASCII)


def part_name(step: Step) -> str:
    """File name of the part that holds exactly the records of `step`."""
    return f"part-{step.partition:05d}-{step.start:010d}-{step.end:010d}.parquet"


def part_step(name: str) -> Step | None:
    """The inverse of part_name; None for every other name."""
    match = _PART_NAME.fullmatch(name)
    step = Step(*map(int, match.groups())) if match else None
    return step if step is not None and step.start < step.end and part_name(step) == name else None


def is_set_aside(name: str) -> bool:
    """True if `name` is a name that set_aside gives."""
    part = name.removeprefix("_").removesuffix(DAMAGED_SUFFIX)
    return part_step(part) is not None and name == f"_{part}{DAMAGED_SUFFIX}"


def overlaps(steps: Iterable[Step]) -> list[tuple[Step, Step]]:
    """Pairs of the sorted `steps` that share records: each step, with the earlier step whose end is the largest."""
    found, widest = list[tuple[Step, Step]](), None
    for step in steps:
        if widest is not None and step.partition == widest.partition and step.start < widest.end:
            found.append((widest, step))
        if widest is None or (step.partition, step.end) > (widest.partition, widest.end):
            widest = step
    return found


def by_partition(steps: Iterable[Step]) -> dict[int, list[Step]]:
    """The steps of each partition, in the given order."""
    found = defaultdict[int, list[Step]](list)
    for step in steps:
        found[step.partition].append(step)
    return found


def missing_ranges(wanted: Sequence[Step], done: Iterable[Step]) -> list[Step]:
    """What none of the published files of a partition, `done`, covers of `wanted`, its records in order.

    Raises RunError if a file has records that are not wanted: beyond the end of the partition, or of another shard.
    """
    missing, files = list[Step](), deque(sorted(done))
    for share in wanted:
        position = share.start
        while files and files[0].start < share.end:
            step = files.popleft()
            if step.start < share.start or step.end > share.end:
                raise _not_wanted(step, wanted)
            if step.start > position:
                missing.append(Step(share.partition, position, step.start))
            position = step.end
        if position < share.end:
            missing.append(Step(share.partition, position, share.end))
    if files:
        raise _not_wanted(files[0], wanted)
    return missing


def _not_wanted(step: Step, wanted: Sequence[Step]) -> RunError:
    if len(wanted) == 1 and not wanted[0].start:
        return RunError(f"{part_name(step)} reaches beyond the {wanted[0].end} records of partition {step.partition}")
    return RunError(f"{part_name(step)} holds records that do not belong to this shard: move it away")
