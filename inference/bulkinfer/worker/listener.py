"""Listens to the launcher, on the stdin of a worker."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from bulkinfer.worker.protocol import End, decode


def listen(take: Callable[[Any], None]) -> None:
    """Give the launcher's commands to `take` until stdin closes. If no End came, or on an error, the process ends."""
    ended = False
    try:
        for line in sys.stdin.buffer:
            command = decode(line)
            ended = ended or isinstance(command, End)
            take(command)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if not ended:
        os._exit(1)
