"""Imports go downwards only, heavy packages stay in their rooms, importing does nothing."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.rules.source import PACKAGE, ROOT, module_name, python_files, tree

# Packages that only these rooms may import, wherever in a file the import stands.
PLACES = {
    "torch": {"zoo", "export", "train"},
    "torchvision": {"zoo", "train"},
    "timm": {"zoo", "train"},
    "pretrainedmodels": {"zoo"},
    "efficientnet_lite_pytorch": {"zoo"},
    "huggingface_hub": {"zoo"},
    "safetensors": {"zoo", "train"},
    "onnx": {"export", "model"},
    "onnxscript": {"export"},
    "onnxruntime": {"runtime", "export"},
    "simplejpeg": {"images"},
    "pillow_heif": {"images"},
    "absl": {"commands"},
    "rich": {"host"},
    "yaml": {"train"},
    "jinja2": {"insight"},
    "wandb": {"train"},
    "obstore": {"stores"},
    "boto3": set(),
    "urllib3": {"stores"},
    "ray": {"launch"},
    **{name: {"serve"} for name in ("starlette", "uvicorn", "httptools", "grpc", "orjson", "prometheus_client")},
    "tensorflow": set(),
}

FILES = python_files(PACKAGE)
NAMES = {module_name(path) for path in FILES}


def room(module: str) -> str:
    """The room of a module: `worker` for bulkinfer.worker.loader."""
    return module.partition(".")[0]


def imported(path: Path) -> list[tuple[str, int]]:
    """Every module that a file imports, anywhere in it, with its line."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            found.append((str(node.module), node.lineno))
    return found


def test_the_contracts_between_rooms_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """[tool.importlinter] in pyproject.toml: floors, the light worker, engines."""
    monkeypatch.chdir(ROOT)
    # Restored afterwards: import-linter configures logging, which disables every logger that exists.
    monkeypatch.setattr(logging.getLogger("bulkinfer"), "disabled", False)
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS


def test_little_lies_flat_at_the_top() -> None:
    flat = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert flat == {"__init__.py", "__main__.py", "config.py", "errors.py", "py.typed", "types.py"}


def test_packages_stay_in_their_rooms() -> None:
    for path in FILES:
        for name, line in imported(path):
            allowed = PLACES.get(room(name))
            assert allowed is None or room(module_name(path)) in allowed, f"{path}:{line}: {name} belongs in {allowed}"


def in_fresh_process(code: str) -> str:
    """What `code` prints on stdout and stderr in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout + done.stderr


def test_importing_does_nothing() -> None:
    modules = ["bulkinfer", *(f"bulkinfer.{name}" for name in sorted(NAMES - {"__init__", "__main__"}))]
    code = f"""
import importlib, logging, os, signal, sys, threading
before = dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), list(logging.root.handlers)
for name in {modules}:
    importlib.import_module(name)
after = dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), list(logging.root.handlers)
assert after == before, "importing changed the environment, a signal handler or the log handlers"
assert threading.active_count() == 1, threading.enumerate()
"""
    assert in_fresh_process(code) == ""


def test_a_loader_process_is_lighter() -> None:
    """There may be many of them: each loads what decodes (which takes pyarrow), and no network."""
    heavy = in_fresh_process(
        "import sys, bulkinfer.worker.loader_process; "
        "print(*{'onnxruntime', 'torch', 'onnx', 'absl', 'rich', 'pandas'} & set(sys.modules))"
    )
    assert heavy.strip() == ""


def test_the_worker_process_is_light() -> None:
    heavy = in_fresh_process(
        "import sys, bulkinfer.worker.process; "
        "print(*{'torch', 'torchvision', 'onnx', 'timm', 'ray', 'absl', 'rich', 'tensorflow'} & set(sys.modules))"
    )
    assert heavy.strip() == ""
