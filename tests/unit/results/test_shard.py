"""shard.py: every step of a job is in one of its shards."""

from __future__ import annotations

from collections import Counter

import pytest
from bulkinfer.results.shard import Shard, ShardEntry, shard_fault, totals_of
from bulkinfer.types import Step


@pytest.mark.parametrize("count", [1, 2, 3, 16, 40])
@pytest.mark.parametrize("totals", [{0: 90}, {0: 7, 1: 8, 2: 9}, {0: 0, 1: 1, 5: 100}, {0: 0}])
def test_every_record_is_in_one_shard(count: int, totals: dict[int, int]) -> None:
    found = Counter[tuple[int, int]]()
    for index in range(1, count + 1):
        ranges = Shard(index, count, 8).ranges(totals)
        assert ranges.keys() == totals.keys()
        assert Shard(index, count, 8).num_records(totals) == {number: sum(map(len, steps)) for number, steps in ranges.items()}
        for partition, steps in ranges.items():
            assert steps == sorted(steps)
            assert all(step.start % 8 == 0 and step.end in (step.start + 8, totals[partition]) for step in steps)
            found.update((partition, number) for step in steps for number in range(step.start, step.end))
    assert found == Counter((partition, number) for partition, total in totals.items() for number in range(total))


def test_a_shard_has_every_nth_step_counted_through_the_partitions() -> None:
    totals = {0: 10, 1: 10, 2: 3}  # steps 0 1 2 | 3 4 5 | 6 of four records
    assert Shard(1, 3, 4).ranges(totals) == {0: [Step(0, 0, 4)], 1: [Step(1, 0, 4)], 2: [Step(2, 0, 3)]}
    assert Shard(3, 3, 4).ranges(totals) == {0: [Step(0, 8, 10)], 1: [Step(1, 8, 10)], 2: []}
    assert Shard(2, 2, 4).ranges(totals) == {0: [Step(0, 4, 8)], 1: [Step(1, 0, 4), Step(1, 8, 10)], 2: []}


def test_many_small_partitions_are_shared_out_evenly() -> None:
    totals = dict.fromkeys(range(8), 24)  # three steps each
    lengths = [sum(Shard(index, 16, 8).num_records(totals).values()) for index in range(1, 17)]
    assert set(lengths) == {8, 16}


def test_the_folders_of_shards_sort_by_number() -> None:
    names = [Shard(index, 16, 1).folder for index in (1, 3, 16)]
    assert names == ["shard-01-of-16", "shard-03-of-16", "shard-16-of-16"]
    assert Shard(3, 4, 1).folder == "shard-3-of-4"


def entry(**changes: object) -> ShardEntry:
    return ShardEntry(**{**Shard(2, 3, 4).as_json({0: 10}), **changes})  # type: ignore[typeddict-item]


def test_what_job_json_says_of_a_shard_is_read_again() -> None:
    assert Shard.of(entry()) == Shard(2, 3, 4)
    assert totals_of(entry()) == {0: 10}
    assert shard_fault(entry(), {0: 4}) == ""


@pytest.mark.parametrize("changes", [
    {"index": 0}, {"index": 4}, {"step_records": 0}, {"totals": {"0": -1}}, {"totals": {"one": 10}}, {"totals": {"0": 6}},
    {"totals": {"0": 10, "1": 10}}, {"index": 3},
])  # fmt: skip
def test_a_shard_that_cannot_be_is_seen(changes: dict[str, object]) -> None:
    assert shard_fault(entry(**changes), {0: 4})
