"""Stop signals during the updates of a run."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from bulkinfer.host.stop_signals import STOP_SIGNALS

log = logging.getLogger("bulkinfer")

COMMAND = "bulkinfer train"


@contextmanager
def stop_signals(says: Callable[[], bool]) -> Iterator[Callable[[], int]]:
    """Until the block ends, the first stop signal lets the update at work end; a second one acts at once.

    At the first one a line says so, if `says()`. Gives a function that returns 0, or the exit code of a process that
    the signal ended.
    """
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)
        if says():
            log.warning("stopping after this update; a second signal stops at once")

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield lambda: 128 + received[0] if received else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
