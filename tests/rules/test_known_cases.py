"""The tables of known cases are complete, and every test that they name exists."""

from __future__ import annotations

import ast
import re
from itertools import takewhile
from pathlib import Path

from tests.rules.source import ROOT, tree

KNOWN = (
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43, 44, 46, 47,
    49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65,
)  # fmt: skip
FOUND = (1, 2, 3, *range(27, 61))  # from outside, by reports and by attacks
CASES = [f"B{number:02d}" for number in KNOWN] + [f"C{number:02d}" for number in FOUND]
HEADER = "| case | what goes wrong for people | what bulkinfer does | test |"


def table() -> list[list[str]]:
    """The cells of each row of the tables in the document that holds them."""
    (text,) = [text for path in ROOT.glob("docs/*.md") if HEADER in (text := path.read_text())]
    lines = [
        line for part in text.split(HEADER)[1:] for line in takewhile(lambda line: line.startswith("|"), part.splitlines()[2:])
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


ROWS = table()


def names_in(path: Path) -> set[str]:
    return {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef)}


def test_every_case_has_one_row() -> None:
    assert [row[0] for row in ROWS] == CASES


def test_the_test_of_each_case_is_there_and_carries_its_id() -> None:
    for case, wrong, right, named in ROWS:
        assert wrong, case
        assert right, case
        match = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", named)
        assert match, named
        path, name = match.groups()
        assert (ROOT / path).exists(), path
        assert name in names_in(ROOT / path), named
        assert f"_{case.lower()}_" in name, named


def test_every_case_that_a_test_carries_has_a_row() -> None:
    found = {
        case
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in names_in(path)
        for case in re.findall(r"_([bc]\d\d)(?=_)", name)
    }
    assert found == {row[0].lower() for row in ROWS}
