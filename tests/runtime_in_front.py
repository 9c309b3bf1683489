"""A module onnxruntime in front of the real one: it does something in every worker process, then steps aside."""

from __future__ import annotations

import os
from pathlib import Path

_MODULE = """
import os, sys

if "bulkinfer.worker.process" in sys.orig_argv:
    exec(open(os.path.join(os.path.dirname(__file__), "before.py")).read())
sys.path.remove(os.path.dirname(__file__))
del sys.modules["onnxruntime"]
import onnxruntime

if "bulkinfer.worker.process" in sys.orig_argv:
    exec(open(os.path.join(os.path.dirname(__file__), "after.py")).read())
"""


def runtime_in_front(folder: Path, *, before: str = "", after: str = "") -> dict[str, str]:
    """The environment in which workers run `before` when they import the runtime, and `after` when they have it."""
    folder.mkdir()
    (folder / "onnxruntime.py").write_text(_MODULE)
    (folder / "before.py").write_text(before)
    (folder / "after.py").write_text(after)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}
