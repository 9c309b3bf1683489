"""plain_yaml.py: keys that stand twice, and texts that are no YAML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bulkinfer.train.compat.plain_yaml import parsed, parsed_once


def test_a_key_that_stands_twice_is_named() -> None:
    assert parsed_once("a: {x: 1}\nb: {x: 1}") == {"a": {"x": 1}, "b": {"x": 1}}
    assert parsed_once("a: &a {x: 1}\nb: {<<: *a, x: 2}") == {"a": {"x": 1}, "b": {"x": 2}}  # what is merged may be replaced
    assert parsed("a: 1\na: 2") == {"a": 2}
    with pytest.raises(ValueError, match="the key 'x' stands twice in line 4"):
        parsed_once("a:\n  - b:\n      x: 1\n      x: 2\n")


@pytest.mark.parametrize("text", ["a: [", "a: !!python/object:os.system x", "[" * 20_000, "a: b: c", "\0"])
def test_what_is_no_plain_yaml(text: str) -> None:
    with pytest.raises(ValueError, match=r"parsing|constructor|deeply|allowed|increasing"):
        parsed_once(text)


def test_an_empty_text() -> None:
    assert parsed_once("") is None


MERGED = """
rest: &rest {name: rest, only_rest: 1}
first: &first {name: first, other: first}
second: &second {<<: *rest, name: second, other: second, third: second}
all: {<<: [*first, *second], other: own}
"""


@pytest.mark.parametrize("read", [parsed, parsed_once])
def test_of_merged_dictionaries_the_first_one_counts_and_the_own_keys_before_all(read: Callable[[str], Any]) -> None:
    assert read(MERGED)["all"] == {"name": "first", "other": "own", "third": "second", "only_rest": 1}
    assert read(MERGED)["second"] == {"name": "second", "other": "second", "third": "second", "only_rest": 1}
    with pytest.raises(ValueError, match="a mapping or a list of mappings is needed for merging"):
        read("a: {<<: [1]}")
    with pytest.raises(ValueError, match="nested too deeply"):
        read("a: &a {<<: *a}")
    assert read("a: {<<: {}}") == {"a": {}}
    assert read("a: &a {1: x}\nb: {<<: *a, '1': y}")["b"] == {1: "x", "1": "y"}
