"""The OpenVINO plugin as tests meet it: the real one, one that serves no processor, or a stand-in that serves any.

The real plugin serves the processors of some vendors only. Tests that need its CPU device ask for the fixture `openvino`, which
is the real plugin where it serves this processor and the stand-in elsewhere; tests of its absence ask for `without_openvino`.
OpenVINO's own runtime does not take its place there. BULKINFER_TEST_PLUGIN=absent or =present in the environment of pytest is
what all other tests meet.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from bulkinfer.errors import UsageError
from bulkinfer.runtime.providers import openvino

VARIABLE = "BULKINFER_TEST_PLUGIN"
MODULE = "onnxruntime_ep_openvino"
FOLDER = Path(__file__).with_name("openvino_stand_in")


@functools.cache
def _stand_in() -> Any:
    """Its module, once a process: it wraps functions of the runtime."""
    spec = importlib.util.spec_from_file_location(MODULE, FOLDER / f"{MODULE}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def plugin(mode: str) -> Iterator[None]:
    """A stand-in for the plugin, in this process and in those that it starts: `present` or `absent`."""
    stand_in, before = _stand_in(), sys.modules.get(MODULE)
    registered, register = set(stand_in.registered), openvino._register
    path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    with mock.patch.dict(os.environ, {VARIABLE: mode, openvino.VARIABLE: "plugin", "PYTHONPATH": path}):
        try:
            sys.modules[MODULE] = stand_in
            stand_in.registered.clear()  # as in a new process: neither the runtime nor we know the plugin
            openvino._register = functools.cache(register.__wrapped__)
            yield
        finally:
            openvino._register = register
            stand_in.registered.clear()
            stand_in.registered.update(registered)
            del sys.modules[MODULE]
            if before is not None:
                sys.modules[MODULE] = before


@contextlib.contextmanager
def offered() -> Iterator[None]:
    """A plugin that serves this processor: the one at hand if it does, otherwise the stand-in."""
    if is_offered():
        with mock.patch.dict(os.environ, {openvino.VARIABLE: "plugin"}):
            yield
    else:
        with plugin("present"):
            yield


def is_offered() -> bool:
    """True if the plugin at hand serves this processor."""
    try:
        return bool(openvino.plugin_devices("CPU"))
    except (ImportError, UsageError):
        return False
