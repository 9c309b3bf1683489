"""job_file.py: what makes a _job.json whole, and that it stays as it is but for what a launch changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import JobFile, RowCounts, job_path, json_sha256
from bulkinfer.results.parquet_parts import Part
from bulkinfer.types import Step

IDENTITY = {"model_name": "tiny", "limit": 0}


def job_file(**changes: Any) -> JobFile:
    """A job of two partitions, of 5 and 3 records; a field that is None in `changes` is missing."""
    content = {
        "fingerprint": json_sha256(IDENTITY),
        "identity": IDENTITY,
        "resolved": {"provider": "cpu"},
        "versions": {"numpy": "2.0"},
        "num_records": 8,
        "partitions": {"0": {"num_records": 5, "keys_sha256": ""}, "1": {"num_records": 3, "keys_sha256": ""}},
        "complete": False,
        "parts": {},
    }
    return JobFile({name: value for name, value in (content | changes).items() if value is not None})


def test_a_folder_without_one(tmp_path: Path) -> None:
    assert JobFile.read(tmp_path) is None
    with pytest.raises(UsageError, match=f"{tmp_path} holds no _job.json: give the results folder of a job"):
        require_job(tmp_path)


def test_what_it_holds(tmp_path: Path) -> None:
    job_file(source="pictures", config={"limit": 3}).write(tmp_path)
    found = require_job(tmp_path)
    assert (found.model_name, found.num_records, found.source, found.config) == ("tiny", 8, "pictures", {"limit": 3})
    assert {index: entry["num_records"] for index, entry in found.partitions.items()} == {0: 5, 1: 3}
    assert (found.skipped, found.is_complete, found.count_rows()) == (None, False, RowCounts())
    assert job_file(config=[]).config == {}


def test_what_this_version_does_not_know_stays_in_its_place(tmp_path: Path) -> None:
    job_file(fingerprint=json_sha256(IDENTITY), younger={"a": 1}).write(tmp_path)
    before = job_path(tmp_path).read_text()
    require_job(tmp_path).write(tmp_path)
    assert job_path(tmp_path).read_text() == before


def test_parts_are_noted_and_forgotten() -> None:
    found = job_file()
    part = Part(Step(0, 0, 5), 3, {"decode": 2}, "ab")
    found.note_part(part)
    assert found.parts[part.name] == {"ok": 3, "errors": 2, "stages": {"decode": 2}, "sha256": "ab"}
    found.note_part(Part(Step(1, 0, 3), 1, {"decode": 1, "read": 1}, "cd"))
    assert found.count_rows() == RowCounts(4, {"decode": 3, "read": 1})
    assert found.count_rows().errors == 4
    for name in (part.name, part.name):
        found.forget_part(name)
    assert len(found.parts) == 1


def test_it_is_complete_once_every_record_is_published() -> None:
    found = job_file()
    found.complete([Step(0, 0, 2), Step(1, 0, 3)])
    assert not found.is_complete
    found.complete([Step(0, 0, 2), Step(1, 0, 3), Step(0, 2, 5)])
    assert found.is_complete
    found.reopen()
    assert not found.is_complete


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *(({name: None}, f"{name} is missing") for name in (
            "fingerprint", "identity", "resolved", "versions", "num_records", "partitions", "complete", "parts")),
        ({"fingerprint": 7}, "fingerprint is 7, not str"),
        ({"fingerprint": "0" * 64}, "its identity does not fit its fingerprint"),
        ({"identity": []}, "identity is [], not dict"),
        ({"resolved": {}}, "resolved.provider is missing"),
        ({"resolved": {"provider": 1}}, "resolved.provider is 1, not str"),
        ({"num_records": "8"}, "num_records is '8', not int"),
        ({"num_records": 9}, "its partitions do not add up to its records"),
        ({"partitions": {"a": {"num_records": 8, "keys_sha256": ""}}}, "its partitions have no numbers"),
        ({"partitions": {"0": {"num_records": 8}}}, "partitions.0.keys_sha256 is missing"),
        ({"partitions": {"0": {"num_records": 8, "keys_sha256": "", "manifest_sha256": 1}}},
         "partitions.0.manifest_sha256 is 1, not str"),
        ({"parts": []}, "parts is [], not dict"),
        ({"parts": {"part-x": {"ok": 1, "stages": {}}}}, "parts.part-x.sha256 is missing"),
        ({"parts": {"part-x": {"ok": 1, "stages": {"read": "1"}, "sha256": ""}}}, "parts.part-x.stages.read is '1', not int"),
    ],
)  # fmt: skip
def test_a_half_valid_description_is_one_sentence(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    job_file(**change).write(tmp_path)
    with pytest.raises(RunError) as caught:
        JobFile.read(tmp_path)
    advice = "run the job with --overwrite, or into another --output"
    assert str(caught.value) == f"{job_path(tmp_path)} is damaged ({told}): {advice}"


def test_a_description_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "_job.json").write_text("{")
    with pytest.raises(
        RunError, match=r"_job\.json is damaged \(not JSON: .*\): run the job with --overwrite, or into another"
    ):
        JobFile.read(tmp_path)
