"""What holds for all tests."""

from __future__ import annotations

import signal
import sys

import pytest
from bulkinfer.host.console import print_log_lines


def pytest_configure() -> None:
    """Print what the library logs, as a command does, and take SIGINT as a terminal gives it.

    A shell without job control starts what it puts in the background with SIGINT ignored. The commands respect that, also for
    the processes that they start, so tests that interrupt them would wait for nothing.
    """
    print_log_lines()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_thread_of_torch() -> None:
    """Networks of tests are small, and every core has a process that runs tests: more threads only wait for each other."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
