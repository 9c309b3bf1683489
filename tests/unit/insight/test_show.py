"""show.py: the first rows, the surest ones, those of a class or a key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.insight.show import Choice, as_cells, error_cells, first_rows, surest_rows
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.results.parquet_parts import write_part
from bulkinfer.results.reader import Results, read_results
from bulkinfer.types import Step

from tests.rows import filled_rows, task
from tests.sealed import write_sealed
from tests.shown_job import BROKEN, DARK_RED, EMPTY, GREY, NUM_OK, ODD


def keys(table: pa.Table | None) -> list[str]:
    assert table is not None
    found: list[str] = table["key"].to_pylist()
    return found


@pytest.fixture
def results(shown: Path) -> Results:
    return read_results(shown)


def test_the_first_rows(results: Results) -> None:
    everything = results.table()["key"].to_pylist()
    for count in (1, 3, 4, 5, 9, 16, 100):
        assert keys(first_rows(results, Choice(), count)) == everything[:count]


def test_the_first_rows_read_no_part_more_than_they_need(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    read, tables = list[int](), Results.tables

    def counting(self: Results, *columns: Any, **options: Any) -> Iterator[pa.Table]:
        for table in tables(self, *columns, **options):
            read.append(len(table))
            yield table

    monkeypatch.setattr(Results, "tables", counting)
    assert len(keys(first_rows(results, Choice(), 5))) == 5
    assert read == [4, 4]


def test_the_least_and_the_most_sure(results: Results) -> None:
    table = results.table(["key", "scores"])
    best = {
        key: scores[0] for key, scores in zip(*(table[name].to_pylist() for name in ("key", "scores")), strict=True) if scores
    }
    by_score = sorted(best, key=lambda key: best[key])  # stable, as the order of rows is kept among equals
    assert by_score[:2] == [GREY, DARK_RED]
    for count in (1, 2, 5, 100):
        assert keys(surest_rows(results, Choice(), count, least=True)) == by_score[:count]
        descending = sorted(best, key=lambda key: -best[key])
        assert keys(surest_rows(results, Choice(), count, least=False)) == descending[:count]


def test_of_a_class(results: Results) -> None:
    red = keys(first_rows(results, Choice("red"), 100))
    assert red == [key for key in keys(first_rows(results, Choice(), 100)) if "red" in key or key.startswith(("odd", "latin"))]
    assert keys(first_rows(results, Choice("RED"), 100)) == red
    assert keys(first_rows(results, Choice("1"), 100)) == red, "the number of the class"
    assert keys(surest_rows(results, Choice("red"), 1, least=True)) == [DARK_RED]


def test_one_of_the_names_of_a_class() -> None:
    choice = Choice("platyhelminth ")
    assert choice._is_named("flatworm, platyhelminth")
    assert not choice._is_named("platyhelminth worm")


def test_of_a_class_by_its_number_where_names_are_known(results: Results) -> None:
    assert keys(first_rows(results, Choice("word of ours", (1,)), 100)) == keys(first_rows(results, Choice("red"), 100))
    assert keys(first_rows(results, Choice("word of ours", (1, 2)), 100))[:2] == ["001-red.png", "002-lime.png"]


def test_a_class_that_no_row_has(results: Results) -> None:
    choice = Choice("reed")
    assert keys(first_rows(results, choice, 10)) == []
    assert {"red", "white", "black"} <= choice.names_seen
    assert keys(first_rows(results, Choice("99"), 10)) == []


def test_by_pattern(results: Results) -> None:
    assert keys(first_rows(results, Choice(key="00[12]-*"), 10)) == ["001-red.png", "002-lime.png"]
    assert keys(first_rows(results, Choice(key="odd*"), 10)) == [ODD], "a line break is a character"
    assert keys(first_rows(results, Choice(key="*.JPG"), 10)) == []


def test_error_rows(results: Results) -> None:
    table = first_rows(results, Choice(only_errors=True), 10)
    assert keys(table) == [BROKEN, EMPTY]
    header, cells = error_cells(table)
    assert header == ["key", "stage", "error"]
    assert [row[:2] for row in cells] == [[BROKEN, "decode"], [EMPTY, "decode"]]
    assert keys(first_rows(results, Choice(only_errors=True, key="b*"), 10)) == [BROKEN]


def test_cells(results: Results) -> None:
    header, cells = as_cells(first_rows(results, Choice(key="*k.png"), 1), num_classes=2)
    assert header == ["key", "class", "score", "class 2", "score 2"]
    assert cells == [["000-black.png", "black", "0.391", "red", "0.144"]]
    header, cells = as_cells(first_rows(results, Choice(key="b*"), 1), num_classes=1)
    assert header == ["key", "class"]
    assert cells[0][1].startswith("error at decode: not a picture")


def test_a_job_without_classes(tmp_path: Path) -> None:
    results = job_of(tmp_path, task("none"))
    assert keys(first_rows(results, Choice(), 2)) == ["000000.jpg", "000001.jpg"]
    assert as_cells(first_rows(results, Choice(), 1), num_classes=2) == (["key"], [["000000.jpg"]])
    with pytest.raises(UsageError, match="keeps no best classes: to save topk, run: infer_launch "):
        first_rows(results, Choice("red"), 2)
    with pytest.raises(UsageError, match="keeps no best classes: to save topk, run: infer_launch "):
        surest_rows(results, Choice(), 2, least=True)


def test_a_job_without_labels_names_classes_by_number(tmp_path: Path) -> None:
    results = job_of(tmp_path, task("topk"))
    assert as_cells(first_rows(results, Choice("3"), 1), num_classes=1)[1][0][:2] == ["000003.jpg", "class 3"]


def test_parts_with_error_rows_only(tmp_path: Path) -> None:
    failed = dict.fromkeys(range(4), ("read", "gone"))
    results = job_of(tmp_path, task("topk"), errors=failed)
    assert keys(surest_rows(results, Choice(), 3, least=True)) == []
    assert keys(first_rows(results, Choice("3"), 3)) == []
    assert len(keys(first_rows(results, Choice(), 3))) == 3


def test_no_part_is_published_yet(tmp_path: Path) -> None:
    results = job_of(tmp_path, task("topk"), num_parts=0)
    assert first_rows(results, Choice(), 3) is None
    assert surest_rows(results, Choice(), 3, least=True) is None


def job_of(folder: Path, of: Any, *, errors: Any = None, num_parts: int = 2) -> Results:
    """A job of eight records in parts of four."""
    identity = {"model_name": "tiny"} | ({"top_k": of.top_k} if "topk" in of.save else {})
    fingerprint = hashlib.sha256(canonical_json(identity).encode()).hexdigest()
    for number in range(num_parts):
        step = Step(0, 4 * number, 4 * number + 4)
        write_part(folder, filled_rows(step, of, errors=errors), len(step), {"fingerprint": fingerprint})
    job: dict[str, Any] = {"fingerprint": fingerprint, "identity": identity, "resolved": {"provider": "cpu"}, "versions": {}}
    job |= {"num_records": 8, "partitions": {"0": {"num_records": 8, "keys_sha256": ""}}, "complete": False, "parts": {}}
    write_sealed(folder / JOB_FILE, job)
    return read_results(folder)


def test_every_ok_row_has_a_score(results: Results) -> None:
    assert len(keys(surest_rows(results, Choice(), 100, least=False))) == NUM_OK
