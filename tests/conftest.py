"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bulkinfer.host.console import print_log_lines
from hypothesis import settings

from tests.openvino import VARIABLE, offered, plugin


def pytest_configure(config: pytest.Config) -> None:
    """Print what the library logs, as a command does, take signals as a terminal gives them, and hide the plugin if asked to.

    A shell without job control starts what it puts in the background with SIGINT ignored, and nohup with SIGHUP ignored. The
    commands respect that, also for the processes that they start, so tests that stop them would wait for nothing.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)  # what tests start is not traced: it would take a third longer
    with _untraced():  # imports of large packages take twice as long where they are traced
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import timm  # noqa: F401
        import torch  # noqa: F401
    settings.register_profile("no deadline", deadline=None)  # other work on the machine is no fault of an example
    settings.load_profile("no deadline")
    print_log_lines()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if mode := os.environ.get(VARIABLE):
        stand_in = plugin(mode)
        stand_in.__enter__()
        config.add_cleanup(lambda: stand_in.__exit__(None, None, None))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what stays to the end: torch and all tests are millions of objects."""
    gc.collect()
    gc.freeze()


@contextmanager
def _untraced() -> Iterator[None]:
    """Coverage is not measured inside."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


_traced: set[str] = set()  # parametrised tests of which one value has run here


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Coverage is measured of unit tests, and of one value of those with many: others start processes, compute, or repeat
    themselves, which tracing makes slower."""
    name = item.nodeid.partition("[")[0]
    if "unit" in item.path.parts and item.get_closest_marker("hypothesis") is None and name not in _traced:
        _traced.add(name)
        return (yield)
    with _untraced():
        return (yield)


@pytest.fixture
def openvino() -> Iterator[None]:
    """A plugin that serves this processor, for one test: the real one where it does, a stand-in elsewhere."""
    with offered():
        yield


@pytest.fixture(scope="module")
def openvino_for_module() -> Iterator[None]:
    """The same, for all tests of a module that come after the first one that asks for it."""
    with offered():
        yield


@pytest.fixture
def without_openvino() -> Iterator[None]:
    """A plugin that is installed and serves no processor, as on a processor of another vendor."""
    with plugin("absent"):
        yield


@pytest.fixture(autouse=True)
def _one_thread_of_torch() -> None:
    """Networks of tests are small, and every core has a process that runs tests: more threads only wait for each other."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
