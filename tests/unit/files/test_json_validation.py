"""json_validation.py: a mismatch is named with its place, and matching values are accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from bulkinfer.files.json_validation import mismatch


class Inner(TypedDict):
    """Of the tests."""

    ok: int
    names: list[str]


class Outer(TypedDict):
    """Of the tests."""

    inner: Inner
    by_name: dict[str, Inner]


SOUND: dict[str, Any] = {"inner": {"ok": 1, "names": []}, "by_name": {"a": {"ok": 2, "names": ["b"]}}, "more": 7}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (10**400, int), (10**308, float),
        (1, int), (1, float), (1.5, float), (True, bool), ("", str), (None, int | None), ("a", int | str), ({}, Any),
        ([], list[int]), ([1, 2], list[int]), ([1, 2], tuple[int, ...]), ((1, "a"), tuple[int, str]), ([1], tuple[int, int]),
        ({"a": [1, "b"]}, dict[str, list[int | str]]), (SOUND, Outer), (Path("a"), Path), ({}, dict[str, Any]),
    ],
)  # fmt: skip
def test_what_fits(value: Any, kind: Any) -> None:
    assert mismatch(value, kind) == ""


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (True, int, "it is True, not int"), (True, float, "it is True, not float"), (1, bool, "it is 1, not bool"),
        (10**400, float, f"it is 1{'0' * 39}…, not float"), ([1, -(10**400)], list[float], f"1 is -1{'0' * 38}…, not float"),
        (1.0, int, "it is 1.0, not int"), (None, str, "it is None, not str"), ("a", list[str], "it is 'a', not list[str]"),
        ({}, list[str], "it is {}, not list[str]"), ([], dict[str, int], "it is [], not dict"),
        (1.5, int | str, "it is 1.5, not int | str"), ([1, "a"], list[int], "1 is 'a', not int"),
        ([1, 2], tuple[int, str], "1 is 2, not str"), ({"a": [1, None]}, dict[str, list[int]], "a.1 is None, not int"),
        ([], Outer, "it is [], not dict"), ({}, Outer, "inner is missing"), ("a" * 99, int, f"it is '{'a' * 39}…, not int"),
        (SOUND | {"inner": {"ok": 1}}, Outer, "inner.names is missing"),
        (SOUND | {"by_name": {"a": 3}}, Outer, "by_name.a is 3, not dict"),
        (SOUND | {"by_name": {"a": {"ok": "1", "names": []}}}, Outer, "by_name.a.ok is '1', not int"),
    ],
)  # fmt: skip
def test_what_does_not(value: Any, kind: Any, told: str) -> None:
    assert mismatch(value, kind) == told


def test_the_place_can_be_given() -> None:
    assert mismatch([1, "a"], list[int], "shape") == "shape.1 is 'a', not int"
