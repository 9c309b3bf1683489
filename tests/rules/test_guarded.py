"""Files that somebody else may have put there are opened by bulkinfer.files.guarded alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rules.source import PACKAGE, python_files, tree

READS = {"read_text", "read_bytes", "read_table", "read_metadata", "read_schema", "load_file", "ParquetFile", "ParquetDataset"}
LOADERS = {"np", "numpy", "torch", "onnx"}  # whose load() opens a file
NO_FILES = {"tarfile", "packed", "opener", "Image"}  # whose open() is given an open file, an address or a member
OURS = {"temporary"}  # a file that this process is writing
GUARDS = {"open_regular", "guarded"}
# The module, and why it opens a file in another way.
ALLOWED = {
    "files/guarded.py": "the guard itself",
    "host/": "reads the kernel's files below /proc and /sys",
    "images/decode.py": "opens a picture non-blocking and asks for a regular file itself, in fewer calls",
    "images/pillow_warnings.py": "/proc/self/maps",
    "results/parquet_parts.py": "Parquet out of memory, read by the guard",
    "records/parquet_pages.py": "Parquet out of memory, of a file that the guard opened",
    "records/bounded_parquet.py": "Parquet from a file that the guard opened, or out of memory",
    "records/layout.py": "Parquet from a file that the guard opened",
    "model/graph_checks.py": "arrays from a file that the guard opened",
    "export/variants/simplify.py": "a graph that this process has just written",
    "zoo/state_dict.py": "by path, after the guard opened it once: their libraries map files by name",
    "train/checkpoints/checkpoint.py": "by path, after its hash was compared by the guard",
    "train/runs.py": "/proc/self/statm",
    "zoo/spec.py": "a file of an installed package",
    "launch/engines/worker_handle.py": "the log of a worker that this process has started",
}


def reads(path: Path) -> Iterator[ast.Call]:
    """The calls in a file that may open another one for reading."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if name == "open" and owner not in {"os", *NO_FILES, *OURS}:
            mode = next((a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)), "r")
            if not set(mode) & set("wax+"):
                yield node
        elif (name == "load" and owner in LOADERS) or (
            name in READS and owner not in GUARDS and (owner or name not in ("read_text", "read_bytes", "read_table"))
        ):
            yield node


def test_only_the_guard_opens_files() -> None:
    offenders = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)[:60]}"
        for path in python_files(PACKAGE)
        if not str(path.relative_to(PACKAGE)).startswith(tuple(ALLOWED))
        for call in reads(path)
    ]
    assert not offenders, "open it with bulkinfer.files.guarded, or say above why not"


def test_every_exception_is_used() -> None:
    used = {name for path in python_files(PACKAGE) for name in ALLOWED
            if str(path.relative_to(PACKAGE)).startswith(name) and any(reads(path))}  # fmt: skip
    assert set(ALLOWED) - used - {"images/decode.py", "files/guarded.py"} == set()


def test_real_paths_are_those_of_real_path() -> None:
    """Path.resolve raises RuntimeError at a loop of links. What the worker's run file gets was looked at before."""
    calls = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in python_files(PACKAGE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "resolve"
        if not node.args and not node.keywords
    ]
    assert not [call for call in calls if not call.startswith("worker/protocol.py:")]
