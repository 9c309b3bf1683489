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


_HELD = """
import os, time
import onnxruntime
_plain, _left = onnxruntime.InferenceSession.run, [{batches}]
def _run(self, names, feed, *rest):
    if any(values.any() for values in feed.values()):
        _left[0] -= 1
        while _left[0] < 0 and not os.path.exists({until!r}):
            time.sleep(0.01)
    return _plain(self, names, feed, *rest)
onnxruntime.InferenceSession.run = _run
"""


def held_after(batches: int, until: Path) -> str:
    """For `after`: a worker runs so many batches of pictures, and further ones once the file `until` is there.

    Batches of zeros, with which a worker warms up, do not count.
    """
    return _HELD.format(batches=batches, until=str(until))


def runtime_in_front(folder: Path, *, before: str = "", after: str = "") -> dict[str, str]:
    """The environment in which workers run `before` when they import the runtime, and `after` when they have it."""
    folder.mkdir()
    (folder / "onnxruntime.py").write_text(_MODULE)
    (folder / "before.py").write_text(before)
    (folder / "after.py").write_text(after)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}
