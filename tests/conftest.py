"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT as a terminal gives it.

    A shell without job control starts what it puts in the background with SIGINT ignored. The commands respect that, also for
    the processes that they start, so tests that interrupt them would wait for nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
