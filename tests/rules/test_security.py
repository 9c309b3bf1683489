"""What SECURITY.md promises of the source: nothing runs what it reads, no shell, no server; archives and YAML in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.rules.source import PACKAGE, ROOT, python_files, shown, tree

FILES = python_files(PACKAGE)
# Modules that run what they read, start shells, serve, or unpack; `zipfile` and `socket` stand for an error, a host's
# name, and the question whether a Ray cluster or a server answers.
FORBIDDEN_MODULES = {
    *("pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml", "tarfile", "pty"),
    *("http.server", "socketserver", "xmlrpc", "multiprocessing", "asyncio", "flask", "uvicorn"),
}
SERVE = "inference/bulkinfer/serve"
# Few files may import one of these; their tests show how it is used. records/sources/ lists members, and unpacks none.
ALLOWED_IMPORTS = {
    "inference/bulkinfer/files/archives.py": {"tarfile"},
    "inference/bulkinfer/records/sources/tar.py": {"tarfile"},
    "inference/bulkinfer/datasets/pickled_arrays.py": {"pickle"},
    "inference/bulkinfer/train/compat/plain_yaml.py": {"yaml"},
    **{f"{SERVE}/{name}.py": {"asyncio", "uvicorn"} for name in ("gate", "service", "server", "rest/body")},
    f"{SERVE}/rest/connection.py": {"asyncio", "uvicorn.protocols.http.httptools_impl"},
    **{f"{SERVE}/{name}.py": {"asyncio"} for name in ("rest/app", "rpc/server")},
    **{f"{SERVE}/jobs/{name}.py": {"asyncio"} for name in ("command_output", "job_service", "runner")},
}
ALLOWED_ATTRIBUTES = {
    "zipfile": {"BadZipFile", "ZIP_DEFLATED", "ZIP_STORED", "ZipFile", "ZipInfo", "is_zipfile"},
    "socket": {"MSG_WAITALL", "create_connection", "gaierror", "gethostname"},
}
# The last one is a SafeLoader: test_plain_yaml.py sees it refuse objects.
SAFE_LOADERS = {"yaml.CSafeLoader", "_MergingSafeLoader"}
LISTENS = f"{SERVE}/server.py"  # the one file that may use all of `socket`
FORBIDDEN_CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "tempfile.mktemp", "__import__"}
ENVIRONMENT = re.compile(r"environ(?:\.get|\.setdefault|\[)?[\[(]?\"([A-Z_0-9]+)\"")


@cache
def calls() -> list[tuple[Path, ast.Call]]:
    """Every call in the package, with its file."""
    return [(path, node) for path in FILES for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


def in_lines(offenders: Iterable[tuple[Path, ast.expr | ast.stmt]]) -> list[str]:
    """File, line and source of each."""
    return [f"{shown(path)}:{node.lineno}: {ast.unparse(node)}" for path, node in offenders]


def is_forbidden(node: ast.AST, path: Path) -> bool:
    """Whether it imports or uses what only some files, or none, may."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
    for name in set(names) - ALLOWED_IMPORTS.get(shown(path), set()):
        if {name, name.partition(".")[0]} & FORBIDDEN_MODULES:
            return True
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ALLOWED_ATTRIBUTES:
        return node.attr not in ALLOWED_ATTRIBUTES[node.value.id] and (node.value.id, shown(path)) != ("socket", LISTENS)
    return False


def test_no_module_that_runs_serves_or_unpacks() -> None:
    assert not in_lines((path, node) for path in FILES for node in ast.walk(tree(path)) if is_forbidden(node, path))


def test_no_call_that_runs_text_or_a_shell() -> None:
    assert not in_lines(
        (path, call)
        for path, call in calls()
        if ast.unparse(call.func) in FORBIDDEN_CALLS or any(word.arg == "shell" for word in call.keywords)
    )


def may_read_pickles(call: ast.Call) -> bool:
    """Whether it reads numbers or weights otherwise than as plain data."""
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    if ast.unparse(call.func) == "torch.load" and given.get("weights_only") != "True":
        return True
    if isinstance(call.func, ast.Attribute):
        of = ast.unparse(call.func.value)
        is_safe = call.func.attr == "safe_load" or given.get("Loader") in SAFE_LOADERS
        if (of == "yaml" and not is_safe) or (of == "pickle" and call.func.attr != "UnpicklingError"):
            return True  # of pickles, only our own Unpickler reads, which finds no names
    return "allow_pickle" in given


def test_numbers_and_weights_are_read_without_pickles() -> None:
    assert not in_lines((path, call) for path, call in calls() if may_read_pickles(call))


def test_processes_of_ours_do_not_import_from_the_working_directory() -> None:
    assert not in_lines(
        (path, node)
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable"
        if ast.unparse(node.elts[1]) != "'-P'"
    )


def test_a_page_lists_every_environment_variable() -> None:
    table = (ROOT / "docs" / "reference" / "environment.md").read_text()
    read = {name for path in FILES for name in ENVIRONMENT.findall(path.read_text())}
    assert {"DATA_DIR", "CUDA_VISIBLE_DEVICES", "ORT_DISABLE_TELEMETRY"} <= read
    assert {name for name in read if f"`{name}`" not in table} == set()


def test_the_policy_is_found_and_names_its_tests() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", policy))
    assert len(named) >= 5
    assert {name for name in named if not (ROOT / name).is_file()} == set()


def test_what_lies_in_the_folder_for_temporary_files_is_private() -> None:
    """Made by TemporaryDirectory or mkdtemp, which choose a random name and mode 0700; the folder itself is only searched."""
    used = {(shown(path), ast.unparse(call.func)) for path, call in calls() if ast.unparse(call.func).startswith("tempfile.")}
    made = {name for _, name in used} - {"tempfile.TemporaryDirectory", "tempfile.mkdtemp", "tempfile.gettempdir"}
    assert not made, used
    searched = [
        ast.unparse(call)
        for _, call in calls()
        if "gettempdir" in ast.unparse(call) and "tempfile" not in ast.unparse(call.func)
    ]
    assert all(text.startswith(("remove_abandoned(", "Path(tempfile.gettempdir())")) for text in searched), searched
