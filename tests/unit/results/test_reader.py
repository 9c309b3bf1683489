"""reader.py: the rows of a results folder as tables, checked when they are read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.results.parquet_parts import schema, to_table, write_part
from bulkinfer.results.part_names import part_name
from bulkinfer.results.reader import read_results
from bulkinfer.types import Step

from tests.rows import filled_rows, task
from tests.sealed import write_sealed

IDENTITY = {"model_name": "tiny"}
FINGERPRINT = hashlib.sha256(canonical_json(IDENTITY).encode()).hexdigest()
STEPS = (Step(0, 0, 3), Step(0, 3, 8), Step(1, 0, 4))
TASK = task("topk", "embedding", labels=("a", "b", "c", "d"))
ERRORS = {STEPS[0]: {1: ("decode", "empty file")}, STEPS[2]: {3: ("read", "file not found"), 0: ("infer", "no")}}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A job of two partitions with three error rows."""
    for step in STEPS:
        write_part(tmp_path, filled_rows(step, TASK, errors=ERRORS.get(step)), len(step), {"fingerprint": FINGERPRINT})
    describe(tmp_path)
    return tmp_path


def describe(folder: Path) -> None:
    partitions = {str(index): {"num_records": size, "keys_sha256": ""} for index, size in ((0, 8), (1, 4))}
    job: dict[str, Any] = {"format": 1, "fingerprint": FINGERPRINT, "identity": IDENTITY, "resolved": {"provider": "cpu"}}
    job |= {"versions": {}, "num_records": 12, "partitions": partitions, "complete": False, "parts": {}}
    write_sealed(folder / JOB_FILE, job)


def test_all_rows_in_order(output: Path) -> None:
    results = read_results(output)
    expected = pa.concat_tables(
        [to_table(filled_rows(step, TASK, errors=ERRORS.get(step)), len(step)).replace_schema_metadata() for step in STEPS]
    )
    assert len(results) == 12
    assert results.is_complete
    assert results.job["num_records"] == 12
    assert results.parts == tuple(output / part_name(step) for step in STEPS)
    assert results.table().to_pylist() == expected.to_pylist()
    assert results.table().column_names == expected.column_names
    assert [len(table) for table in results.tables()] == [3, 5, 4]
    assert read_results(str(output)).table().equals(results.table())


def test_columns_come_in_the_order_asked_for(output: Path) -> None:
    results = read_results(output)
    table = results.table(["class_ids", "key"])
    assert table.column_names == ["class_ids", "key"]
    assert table.equals(results.table().select(["class_ids", "key"]))


def test_errors_are_the_error_rows(output: Path) -> None:
    errors = read_results(output).errors()
    assert errors.column_names == ["key", "key_bytes", "partition", "stage", "error", "size_bytes"]
    found = errors.select(["key", "partition", "stage", "error"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("000001.jpg", 0, "decode", "empty file"),
        ("000000.jpg", 1, "infer", "no"),
        ("000003.jpg", 1, "read", "file not found"),
    ]


def test_a_column_that_is_not_there_is_named_with_those_that_are(output: Path) -> None:
    there = ", ".join(schema(TASK).names)
    with pytest.raises(UsageError, match=f"has no column 'logits'; there are {there}$"):
        read_results(output).table(["key", "logits"])
    with pytest.raises(UsageError, match="columns is the string 'key': give a list of names"):
        read_results(output).table("key")


def test_a_job_that_has_published_nothing_has_no_rows(tmp_path: Path) -> None:
    describe(tmp_path)
    results = read_results(tmp_path)
    assert (len(results), results.is_complete, results.parts) == (0, False, ())
    assert results.table().column_names == [name for name in schema(task()).names if name not in ("class_ids", "scores")]
    assert results.errors().num_rows == 0
    with pytest.raises(UsageError, match="has no column 'class_ids'; there are key, key_bytes"):
        results.table(["class_ids"])


def test_a_folder_of_no_job_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(UsageError, match=f"{folder} holds no _job.json: give the results folder of a job"):
            read_results(folder)


def test_damage_is_never_read_over(output: Path) -> None:
    path = output / part_name(STEPS[1])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    results = read_results(output)
    with pytest.raises(RunError, match=f"{path.name} is damaged"):
        results.table()
    path.unlink()
    assert (len(read_results(output)), read_results(output).is_complete) == (7, False)
    pq.write_table(pa.table({"key": ["a"]}), path)
    with pytest.raises(RunError, match="its metadata names no job"):
        read_results(output).table()
    (output / part_name(Step(0, 2, 4))).write_bytes(b"")
    with pytest.raises(RunError, match="overlap"):
        read_results(output)


@pytest.mark.parametrize("columns", [5, [1], [b"key"], {"key": 1}.values()])
def test_columns_that_are_no_names_are_one_sentence(output: Path, columns: Any) -> None:
    with pytest.raises(UsageError, match=r"columns is .*: give a list of names"):
        read_results(output).table(columns)
