"""What SECURITY.md promises of the source: nothing runs what it reads, no shell, no server; archives and YAML in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.rules.source import PACKAGE, ROOT, python_files, shown, tree

FILES = python_files(PACKAGE)
# Modules that run what they read, start shells, serve, or unpack; `zipfile` and `socket` stand for an error and a host's name.
FORBIDDEN_MODULES = {
    *("pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml", "tarfile", "pty"),
    *("http.server", "socketserver", "xmlrpc", "multiprocessing", "asyncio", "flask", "uvicorn"),
}
# One file each may import one of these; their tests show how it is used.
ALLOWED_IMPORTS = {
    "inference/bulkinfer/files/archives.py": {"tarfile"},
    "inference/bulkinfer/datasets/pickled_arrays.py": {"pickle"},
    "inference/bulkinfer/train/named_configs.py": {"yaml"},
}
ALLOWED_ATTRIBUTES = {"zipfile": {"BadZipFile", "ZipFile", "ZipInfo"}, "socket": {"gethostname"}}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "tempfile.mktemp", "__import__"}
ENVIRONMENT = re.compile(r"environ(?:\.get|\.setdefault|\[)?[\[(]?\"([A-Z_0-9]+)\"")


def calls(path: Path) -> list[ast.Call]:
    """All calls in a file."""
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_no_module_that_runs_serves_or_unpacks(path: Path) -> None:
    for node in ast.walk(tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in set(names) - ALLOWED_IMPORTS.get(shown(path), set()):
            assert name not in FORBIDDEN_MODULES, f"line {node.lineno}: {name}"
            assert name.partition(".")[0] not in FORBIDDEN_MODULES, f"line {node.lineno}: {name}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ALLOWED_ATTRIBUTES:
            assert node.attr in ALLOWED_ATTRIBUTES[node.value.id], f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_no_call_that_runs_text_or_a_shell(path: Path) -> None:
    for call in calls(path):
        assert ast.unparse(call.func) not in FORBIDDEN_CALLS, f"line {call.lineno}: {ast.unparse(call)}"
        for word in call.keywords:
            assert word.arg != "shell", f"line {call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_numbers_and_weights_are_read_without_pickles(path: Path) -> None:
    for call in calls(path):
        given = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if ast.unparse(call.func) == "torch.load":
            assert given["weights_only"] == "True", f"line {call.lineno}"
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "yaml":
            assert call.func.attr == "safe_load", f"line {call.lineno}"
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "pickle":
            assert call.func.attr == "UnpicklingError", (
                f"line {call.lineno}: only our own Unpickler, which finds no names, reads"
            )
        assert "allow_pickle" not in given, f"line {call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_processes_of_ours_do_not_import_from_the_working_directory(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
            assert ast.unparse(node.elts[1]) == "'-P'", f"line {node.lineno}: {ast.unparse(node)}"


def test_the_readme_tells_of_every_environment_variable() -> None:
    table = (ROOT / "README.md").read_text().partition("\n## Environment variables\n")[2].partition("\n## ")[0]
    read = {name for path in FILES for name in ENVIRONMENT.findall(path.read_text())}
    assert {"DATA_DIR", "CUDA_VISIBLE_DEVICES", "ORT_DISABLE_TELEMETRY"} <= read
    assert {name for name in read if f"`{name}`" not in table} == set()


def test_the_policy_is_found_and_names_its_tests() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", policy))
    assert len(named) >= 5
    assert {name for name in named if not (ROOT / name).is_file()} == set()
