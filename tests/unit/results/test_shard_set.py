"""shard_set.py: what all shards of a job share, and what a folder of shards is to commands that take one output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.results.find_output import find_output
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.reader import read_results
from bulkinfer.results.shard import SHARDS_FILE, Shard
from bulkinfer.results.shard_set import FIELD, ShardSet, read_shard_set, refuse_shard_set


def content(shard: Shard | None = None, **changes: Any) -> dict[str, Any]:
    """What describes a job of two partitions of 10 and 6 records, or one shard of it."""
    totals = {0: 10, 1: 6}
    records = shard.num_records(totals) if shard else totals
    identity: dict[str, Any] = {"model_name": "tiny"}
    found = {
        "fingerprint": "7e2a80dc7f0bdb4ee8bd1c4c9f2d0ed2bb2bc4ea4e4fa2b3e2f3d47e2d3a1a7d",
        "identity": identity,
        "resolved": {"provider": "cpu", "precision": "fp32"},
        "versions": {},
        "num_records": sum(records.values()),
        "partitions": {str(n): {"num_records": records[n], "keys_sha256": "", "manifest_sha256": f"m{n}"} for n in totals},
        "complete": False,
        "parts": {},
        **({"shard": shard.as_json(totals)} if shard else {}),
    }
    return {**found, **changes}


SHARD = Shard(2, 3, 4)
SET = ShardSet(Path("out"), JobFile(content()), 3, 4)


def job(**changes: Any) -> JobFile:
    return JobFile(content(SHARD, **changes))


def test_a_shard_of_the_job_has_no_fault() -> None:
    assert SET.fault_of(SHARD, job()) == ""
    assert [SET.output(shard).name for shard in SET] == ["shard-1-of-3", "shard-2-of-3", "shard-3-of-3"]


@pytest.mark.parametrize(("found", "fault"), [
    (job(fingerprint="0" * 64), "holds another job (fingerprint 00000000, the shards here have 7e2a80dc)"),
    (JobFile(content()), "holds the whole job, not shard 2/3 in steps of 4"),
    (JobFile(content(replace(SHARD, index=1))), "holds shard 1/3 in steps of 4 records, not shard 2/3"),
    (JobFile(content(replace(SHARD, step_records=2))), "holds shard 2/3 in steps of 2 records, not shard 2/3 in steps of 4"),
    (job(resolved={"provider": "cpu", "precision": "int8"}), "ran with precision int8, the other shards with fp32"),
    (job(partitions={"0": {"num_records": 4, "keys_sha256": "", "manifest_sha256": "m0"}}), "partition 1 than this shard"),
    (job(partitions={n: {"num_records": 4, "keys_sha256": "", "manifest_sha256": "x"} for n in "01"}), "lists other pictures"),
])  # fmt: skip
def test_another_job_in_the_folder_of_a_shard_is_named(found: JobFile, fault: str) -> None:
    assert fault in SET.fault_of(SHARD, found)


def write_set(folder: Path) -> None:
    from bulkinfer.results.job_file import json_sha256

    whole = content()
    write_json(
        folder / SHARDS_FILE, {**whole, "fingerprint": json_sha256(whole["identity"]), FIELD: {"count": 3, "step_records": 4}}
    )


def test_a_folder_of_shards_is_read(tmp_path: Path) -> None:
    assert read_shard_set(tmp_path) is None
    write_set(tmp_path)
    found = read_shard_set(tmp_path)
    assert found is not None
    assert (found.count, found.step_records, found.job.num_records) == (3, 4, 16)


@pytest.mark.parametrize("change", [{FIELD: None}, {FIELD: {"count": "3", "step_records": 4}}, {"parts": None}])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    write_set(tmp_path)
    write_json(tmp_path / SHARDS_FILE, {**read_json(tmp_path / SHARDS_FILE), **change})
    with pytest.raises(RunError, match=r"_shards\.json is damaged .*: remove it and run infer_launch of one shard again"):
        read_shard_set(tmp_path)


def test_commands_that_take_one_output_say_what_to_type(tmp_path: Path) -> None:
    refuse_shard_set(tmp_path)
    write_set(tmp_path)
    with pytest.raises(UsageError, match=f"holds the shards of a job: bulkinfer merge {tmp_path} joins them$"):
        find_output(tmp_path)
    (tmp_path / SHARD.folder).mkdir()
    for refused in (find_output, read_results):
        with pytest.raises(BulkinferError, match=f"until then give one of them, such as {tmp_path}/shard-2-of-3$"):
            refused(tmp_path)
    (tmp_path / "merged").mkdir()
    with pytest.raises(UsageError, match=f"give {tmp_path}/merged, which has the rows of all"):
        find_output(tmp_path)
    assert json.loads((tmp_path / SHARDS_FILE).read_text())["format"] == 2
