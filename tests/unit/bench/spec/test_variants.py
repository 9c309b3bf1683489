"""variants.py: products, rows and named variants."""

from __future__ import annotations

from typing import Any

import pytest
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.variants import variants_of
from bulkinfer.errors import UsageError


def names(keys: dict[str, Any]) -> list[str]:
    return [variant.name for variant in variants_of("bench", keys, {}, Place("file", "bench"))]


def values(keys: dict[str, Any]) -> list[dict[str, str]]:
    return [variant.values for variant in variants_of("bench", keys, {"n": "1"}, Place("file", "bench"))]


def test_without_parameters_there_is_one() -> None:
    assert names({}) == ["bench"]
    assert values({}) == [{"n": "1"}]


def test_a_dictionary_is_a_product() -> None:
    keys = {"parameters": {"b": "1, 2", "a": ["x,y", "z"]}}
    assert values(keys) == [
        {"n": "1", "b": "1", "a": "x,y"}, {"n": "1", "b": "1", "a": "z"},
        {"n": "1", "b": "2", "a": "x,y"}, {"n": "1", "b": "2", "a": "z"},
    ]  # fmt: skip
    assert names({"parameters": {"b": 1, "a": 2.5}}) == ["bench_a_2.5_b_1"]  # names in order of the letters


def test_a_list_is_rows() -> None:
    assert values({"parameters": [["a", "b"], [1, 2], [3, 4]]}) == [
        {"n": "1", "a": "1", "b": "2"},
        {"n": "1", "a": "3", "b": "4"},
    ]


def test_values_that_no_folder_can_be_called_are_numbered() -> None:
    assert names({"parameters": {"words": ["--a b", "--c/d"]}}) == ["bench_0", "bench_1"]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"parameters": 3}, "it is a number: give a dictionary"),
        ({"parameters": []}, "give a dictionary"),
        ({"parameters": [["a"]]}, "it has 0 rows of values"),
        ({"parameters": [["a", "b"], [1]]}, "row 1 has 1 values for the 2 names a, b"),
        ({"parameters": {"a": "1,1"}}, "two variants have the same values"),
        ({"parameters": {"a": list(range(40)), "b": list(range(40))}}, "it makes 1600 variants, and an entry has 1 to 1000"),
        ({"parameters": {"a-b": 1}}, "'a-b' cannot be the name of a parameter: use letters, digits and _"),
        ({"parameters": {"run_dir": 1}}, "bulkinfer bench sets it itself"),
        ({"parameters": {"a": 1}, "variants": {"x": {"a": 1}}}, "it has parameters and variants"),
        ({"variants": {"x": {"a": 1}, "y": {"b": 1}}}, "the variants set different names"),
        ({"variants": {"x/y": {"a": 1}}}, "'x/y' is no name"),
        ({"variants": {}}, "it is empty"),
    ],
)
def test_faults(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as failed:
        names(keys)
    assert sentence in str(failed.value)
