"""options.py: values that contradict each other, or that the rest would ignore, are refused."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.insight.options import CompareConfig, DoctorConfig, RowsConfig, ShowConfig
from bulkinfer.insight.rows_format import FORMATS

USED = {
    "top_k": (2, {"csv", "jsonl", "coco"}),
    "column": ("logits", {"npy"}),
    "prefix": ("http://host/", {"label_studio"}),
    "rows_per_file": (10, {"parquet"}),
}


@pytest.mark.parametrize("name", USED)
@pytest.mark.parametrize("format", FORMATS)
def test_options_of_other_formats(name: str, format: str) -> None:
    value, formats = USED[name]
    options: dict[str, Any] = {"to": "rows", "format": format, name: value}
    if format in formats:
        RowsConfig(**options)
    else:
        with pytest.raises(UsageError, match=f"--{name} belongs to --format .*: leave it out with --format {format}"):
            RowsConfig(**options)


@pytest.mark.parametrize("name", USED)
def test_the_help_of_an_option_names_its_formats(name: str) -> None:
    (field,) = (field for field in fields(RowsConfig) if field.name == name)
    named = field.metadata["doc"].partition(":")[0]
    assert set(re.findall(r"\w+", named)) - {"of", "and"} == USED[name][1]


@pytest.mark.parametrize("order", ["least_sure", "most_sure"])
def test_two_numbers_of_rows(order: str) -> None:
    options: dict[str, Any] = {order: 3}
    ShowConfig(**options)
    with pytest.raises(UsageError, match="each say how many rows are shown: give one of them"):
        ShowConfig(top=5, **options)


def test_values_of_other_types() -> None:
    with pytest.raises(UsageError, match="give a list"):
        CompareConfig(jobs="out")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="it must be text"):
        DoctorConfig(model_path=3)  # type: ignore[arg-type]
