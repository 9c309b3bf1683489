"""Rules of the repository that the source shows: sizes, names, docstrings, no swallowed errors, no skipped tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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


def test_sizes() -> None:
    offenders = []
    for path in FILES:
        lines = len(path.read_text().splitlines())
        offenders += [f"{shown(path)} has {lines} lines"] if lines > MAX_FILE_LINES else []
        for function in functions(path):
            length = (function.end_lineno or 0) - function.lineno + 1
            offenders += [f"{shown(path)}: {function.name} has {length} lines"] if length > MAX_FUNCTION_LINES else []
    assert not offenders


def test_names_say_what_is_inside() -> None:
    assert not [shown(path) for path in FILES + TESTS_AND_TOOLS if path.stem in VAGUE_NAMES]


def test_docstrings() -> None:
    offenders = []
    for path in FILES:
        module = tree(path)
        if not module.body:
            continue  # an empty __init__.py
        if not ast.get_docstring(module):
            offenders.append(f"{shown(path)} does not say what it is for")
        for node in module.body:
            is_public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if is_public and not ast.get_docstring(node):
                offenders.append(f"{shown(path)}: {node.name} does not say what it does")
    assert not offenders


def swallows_every_error(node: ast.AST) -> bool:
    """An `except` without a type, or anything that catches every error to do nothing."""
    if isinstance(node, ast.ExceptHandler):
        catches_all = not node.type or ast.unparse(node.type) in ("Exception", "BaseException")
        does_nothing = all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
        return not node.type or (catches_all and does_nothing)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("contextlib.suppress", "suppress"):
        return bool({ast.unparse(argument) for argument in node.args} & {"Exception", "BaseException"})
    return False


def test_no_error_is_swallowed() -> None:
    assert not [
        f"{shown(path)}:{node.lineno}"
        for path in FILES + TESTS_AND_TOOLS
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler | ast.Call) and swallows_every_error(node)
    ]


def test_c50_there_is_one_way_to_print() -> None:
    """`say` in host/console.py, which escapes; below commands/ everything logs (docs/adr/0021), or writes to a file that it
    names. isolated_call.py answers its caller on stdout.
    """
    offenders = []
    for path in FILES:
        if path.name in ("console.py", "isolated_call.py"):
            continue
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call):
                continue
            function, to = ast.unparse(node.func), [ast.unparse(word.value) for word in node.keywords if word.arg == "file"]
            is_print = function == "print" and (not to or to[0].startswith("sys."))
            if is_print or re.fullmatch(r"sys\.std(out|err)\.write(lines)?", function):
                offenders.append(f"{shown(path)}:{node.lineno}")
    assert not offenders


def test_no_test_is_skipped() -> None:
    assert not [
        f"{shown(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in python_files(ROOT / "tests")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in EXCUSES
    ]
