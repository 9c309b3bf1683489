"""Folders that take long to make, made by whichever process of this test run comes first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of this run of the tests, after make(folder) has filled it once; others wait meanwhile."""
    common = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # its own base lies in that of the run
        common = common.parent
    folder = common / f"made-{name}"
    with (common / f"made-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = common / f"unfinished-{name}"
            unfinished.mkdir()  # one that failed is not tried again
            make(unfinished)
            unfinished.rename(folder)
    return folder
