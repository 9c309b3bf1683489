"""House rules that can be read off the source: sizes, names, docstrings, no swallowed errors, no skipped tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.source import PACKAGE, ROOT, python_files, shown, tree

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc", "tools"}
EXCUSES = {"skip", "skipif", "xfail", "importorskip"}

FILES = python_files(PACKAGE)
TESTS_AND_TOOLS = python_files(ROOT / "tests") + python_files(ROOT / "tools")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a file."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_sizes(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES
    for function in functions(path):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= MAX_FUNCTION_LINES, f"{function.name} has {length} lines"


@pytest.mark.parametrize("path", FILES + TESTS_AND_TOOLS, ids=shown)
def test_names_say_what_is_inside(path: Path) -> None:
    assert path.stem not in VAGUE_NAMES


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_docstrings(path: Path) -> None:
    module = tree(path)
    if not module.body:
        return  # an empty __init__.py
    assert ast.get_docstring(module), "the file does not say what it is for"
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} does not say what it does"


@pytest.mark.parametrize("path", FILES + TESTS_AND_TOOLS, ids=shown)
def test_no_error_is_swallowed(path: Path) -> None:
    """No bare `except:`, and nothing that catches every error to do nothing."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type, f"line {node.lineno}: except without a type"
            catches_all = ast.unparse(node.type) in ("Exception", "BaseException")
            does_nothing = all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
            assert not (catches_all and does_nothing), f"line {node.lineno}: every error is swallowed"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("contextlib.suppress", "suppress"):
            names = {ast.unparse(argument) for argument in node.args}
            assert not names & {"Exception", "BaseException"}, f"line {node.lineno}: every error is swallowed"


@pytest.mark.parametrize("path", python_files(ROOT / "tests"), ids=shown)
def test_no_test_is_skipped(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            assert node.attr not in EXCUSES, f"line {node.lineno}: {ast.unparse(node)}"
