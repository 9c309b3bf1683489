"""Imports go downwards only, heavy packages stay where they belong, importing does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.source import PACKAGE, module_name, python_files, tree

# From the bottom up: a module imports only from layers below its own. `zoo` stands for all of zoo/, the other folders likewise.
LAYERS = (
    (
        "__init__",
        "errors",
        "signatures",
        "links",
        "markers",
        "waiting",
        "help_text",
        "decoder_notices",
        "metrics",
        "split",
        "structure",
        "lifeline",
        "processes",
        "published_sets",
    ),
    ("runtime_reason", "stand_ins", "child", "flag_file", "flag_values", "claims"),
    ("types", "config", "paths", "cores", "runlog", "download", "archives", "hub", "state_dict", "jpeg"),
    ("lease",),
    ("file_lock",),
    ("card", "parts", "entries", "scan", "decode", "output_lock", "providers", "steps", "progress", "kept", "in_flight"),
    ("preprocess", "session", "postprocess", "devices", "manifest_file", "coco", "zoo", "graph_checks", "readers"),
    ("manifest", "model_damage", "get_dataset"),
    ("get_model_hint",),
    ("gate", "loader", "results", "partition", "listing", "weights", "graph_file", "messages", "model_lookup", "user_files"),
    ("calibration_pictures", "activation_ranges", "precision"),
    ("export", "foreign_file", "generated", "probe", "precision_trial"),
    ("foreign",),
    ("graph_rewrite",),
    (
        "worker",
        "job",
        "ok_rows",
        "aggregate",
        "model_folder",
        "engine",
        "adopt_outputs",
        "user_golden",
        "quantize",
        "no_network",
        "worker_handle",
    ),
    ("adopt_batch", "judge", "half", "simplify", "variant_request"),
    (
        "publisher",
        "local_engine",
        "reporter",
        "resume",
        "kept_listing",
        "skip_done",
        "merge",
        "verify",
        "provision",
        "summary",
        "tuned_flags",
    ),
    ("int8_variant", "fp16_variant"),
    ("train",),
    ("trained",),
    ("worker_process", "adopt", "variant", "measurement", "settle"),
    ("inline_engine", "bench_figures"),
    ("launcher",),
    ("retry",),
    ("bench_runs",),
    ("tune",),
    ("bench",),
    ("commands.flags",),
    ("commands",),
    ("__main__",),
)

# Packages that only these modules may import, wherever in the file the import stands.
PLACES = {
    "torch": {"zoo", "state_dict", "export", "provision", "train"},
    "torchvision": {"zoo", "train"},
    "timm": {"zoo", "train"},
    "pretrainedmodels": {"zoo"},
    "efficientnet_lite_pytorch": {"zoo"},
    "huggingface_hub": {"hub"},
    "safetensors": {"state_dict", "train"},
    "onnx": {
        "export",
        "model_folder",
        "graph_checks",
        "graph_file",
        "foreign",
        "foreign_file",
        "graph_rewrite",
        "adopt",
        "activation_ranges",
        "quantize",
        "half",
        "simplify",
        "judge",
        "int8_variant",
        "fp16_variant",
        "variant",
    },
    "onnxscript": {"export"},
    "onnxruntime": {"providers", "quantize", "half"},
    "simplejpeg": {"jpeg"},
    "absl": {"commands.flags", "flag_values"},
    "rich": {"progress"},
    "yaml": {"train"},
    "ray": set(),
    "tensorflow": set(),
}

FILES = python_files(PACKAGE)
NAMES = {module_name(path) for path in FILES}


def unit(module: str) -> str:
    """The name under which a module stands in the tables above."""
    return module if module == "commands.flags" else module.partition(".")[0]


def imported(path: Path) -> list[tuple[str, int]]:
    """Every module that a file imports, anywhere in it, with its line; `from inference import x` names x if it is a module."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            module = str(node.module)
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                found.append((inner if inner.removeprefix("inference.") in NAMES else module, node.lineno))
    return found


def test_every_module_has_one_layer() -> None:
    placed = [name for layer in LAYERS for name in layer]
    assert len(placed) == len(set(placed))
    assert set(placed) == {unit(name) for name in NAMES}, "LAYERS and inference/ differ"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_downwards(path: Path) -> None:
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    ours = unit(module_name(path))
    for name, line in imported(path):
        if name.partition(".")[0] != "inference":
            continue
        theirs = unit(name.removeprefix("inference").removeprefix(".") or "__init__")
        # the __init__.py of a family is the table over the files beside it
        same_folder = ours == theirs and ours in ("zoo", "providers", "readers", "train")
        assert same_folder or level[theirs] < level[ours], f"{path}:{line}: {ours} imports {theirs}, which is not below it"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_packages_stay_in_their_places(path: Path) -> None:
    for name, line in imported(path):
        allowed = PLACES.get(name.partition(".")[0])
        assert allowed is None or unit(module_name(path)) in allowed, f"{path}:{line}: {name} may only be imported in {allowed}"


def in_fresh_process(code: str) -> str:
    """What `code` prints on stdout and stderr in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout + done.stderr


def test_importing_does_nothing() -> None:
    modules = ["inference", *(f"inference.{name}" for name in sorted(NAMES - {"__init__", "__main__"}))]
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


def test_the_worker_process_is_light() -> None:
    heavy = in_fresh_process(
        "import sys, inference.worker_process; "
        "print(*{'torch', 'torchvision', 'onnx', 'timm', 'ray', 'absl', 'rich', 'tensorflow'} & set(sys.modules))"
    )
    assert heavy.strip() == ""
