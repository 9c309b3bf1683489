"""rows_format.py: the format by --format, by the ending of the name, or a refusal where the two contradict."""

from __future__ import annotations

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.insight.rows_format import AUTO, FORMATS, format_for


@pytest.mark.parametrize(
    ("to", "format"),
    [
        ("rows.csv", "csv"),
        ("a.npy/rows.CSV", "csv"),
        ("rows.jsonl", "jsonl"),
        ("rows.ndjson", "jsonl"),
        ("v1.2.npy", "npy"),
        ("rows.parquet", "parquet"),
        ("rows", "csv"),
        (".csv", "csv"),
        ("-", "csv"),
    ],
)
def test_the_ending_says_it(to: str, format: str) -> None:
    assert format_for(AUTO, to) == format
    assert format_for(format, to) == format


@pytest.mark.parametrize("to", ["rows.tsv", "rows.xlsx", "rows.csv.gz", "rows.2026"])
def test_an_ending_of_no_format(to: str) -> None:
    ending = to[to.rindex(".") :]
    with pytest.raises(UsageError, match=rf"no format has the ending \{ending}: give --format, or a name that ends in one of"):
        format_for(AUTO, to)


def test_json_may_be_several() -> None:
    with pytest.raises(UsageError, match="may mean coco, label_studio, fiftyone or jsonl: give --format coco or another"):
        format_for(AUTO, "labels.json")
    for format in ("coco", "label_studio", "fiftyone", "jsonl"):
        assert format_for(format, "labels.json") == format


@pytest.mark.parametrize(
    ("format", "to"), [("csv", "x.xlsx"), ("csv", "x.npy"), ("npy", "x.csv"), ("jsonl", "x.csv"), ("csv", "x.gz")]
)
def test_two_that_contradict(format: str, to: str) -> None:
    with pytest.raises(UsageError, match=f"is not the ending of --format {format}: give a name that ends in .*{format}"):
        format_for(format, to)


@pytest.mark.parametrize("format", FORMATS)
def test_other_names_are_free(format: str) -> None:
    assert {format_for(format, to) for to in ("rows", "rows.2026-11", "rows.txt")} == {format}
