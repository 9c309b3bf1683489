"""Shards: launchers on many machines share the steps of one job, and each writes an output of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from bulkinfer.types import Step

SHARDS_FILE = "_shards.json"  # beside the outputs of the shards: the job that they share
MERGED = "merged"  # beside them: the rows of all


class ShardEntry(TypedDict):
    """A shard as _job.json records it; `totals` are the records of whole partitions, by number."""

    index: int
    count: int
    step_records: int
    totals: dict[str, int]


@dataclass(frozen=True)
class Shard:
    """Every `count`-th step of a job, beginning with step `index` (1 to `count`); a step has `step_records` records.

    Steps are counted through all partitions, each of which begins a new step. So shards are of nearly equal length, also where
    a partition has fewer steps than there are shards.
    """

    index: int
    count: int
    step_records: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def folder(self) -> str:
        """Name of its output: shard-03-of-16."""
        return f"shard-{self.index:0{len(str(self.count))}}-of-{self.count}"

    def ranges(self, totals: Mapping[int, int]) -> dict[int, list[Step]]:
        """Its records by partition, in order; `totals` are the records of whole partitions."""
        size = self.step_records
        return {
            partition: [Step(partition, n * size, min(n * size + size, totals[partition])) for n in numbers]
            for partition, numbers in self._steps(totals)
        }

    def num_records(self, totals: Mapping[int, int]) -> dict[int, int]:
        """How many records it has of each partition."""
        size = self.step_records
        return {
            partition: len(numbers) * size - (max(0, numbers[-1] * size + size - totals[partition]) if numbers else 0)
            for partition, numbers in self._steps(totals)
        }

    def _steps(self, totals: Mapping[int, int]) -> Iterator[tuple[int, range]]:
        """Of each partition the numbers of its steps that belong to this shard."""
        before = 0
        for partition, total in sorted(totals.items()):
            steps = -(-total // self.step_records)
            yield partition, range((self.index - 1 - before) % self.count, steps, self.count)
            before += steps

    def as_json(self, totals: Mapping[int, int]) -> dict[str, Any]:
        """A ShardEntry."""
        return {**asdict(self), "totals": {str(partition): total for partition, total in sorted(totals.items())}}

    @classmethod
    def of(cls, entry: ShardEntry) -> Shard:
        return cls(entry["index"], entry["count"], entry["step_records"])


def totals_of(entry: ShardEntry) -> dict[int, int]:
    """The records of whole partitions, by number."""
    return {int(partition): total for partition, total in entry["totals"].items()}


def shard_fault(entry: ShardEntry, num_records: Mapping[int, int]) -> str:
    """Why this cannot be a shard whose partitions have `num_records`; empty if it can."""
    if not (1 <= entry["index"] <= entry["count"] and entry["step_records"] >= 1):
        return f"shard {entry['index']}/{entry['count']} with steps of {entry['step_records']} records cannot be"
    if not all(number.isascii() and number.isdigit() and total >= 0 for number, total in entry["totals"].items()):
        return "the partitions of its shard have no numbers"
    fits = Shard.of(entry).num_records(totals_of(entry)) == dict(num_records)
    return "" if fits else "its partitions do not fit its shard"
