"""Long calls that leave Python, such as the decoding of a file: a stop signal does not wait for their end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from bulkinfer.host.stop_signals import is_own_process

Result = TypeVar("Result")


def interruptible(act: Callable[[], Result]) -> Result:
    """What `act` returns or raises; in the main thread of a command, a stop signal is raised while `act` still runs.

    Python handles signals between its own instructions, and in the main thread only. So `act` runs in another thread. After
    a signal it is left alone: it must change nothing that others use, and the end of the process ends it.
    """
    if not is_own_process() or threading.current_thread() is not threading.main_thread():
        return act()
    outcome = Future[Result]()

    def run() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name="interruptible").start()
    return outcome.result()
