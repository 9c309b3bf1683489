"""Settings of a process that count only if they are made at its start, before torch is loaded. Imports nothing heavy itself."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_PR_SET_PDEATHSIG = 1
_SPINS = 5000  # some tens of microseconds: most waits between the layers of a small network are shorter
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # parameter numbers in glibc's malloc.h


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent dies, however that happens.

    Kills this process at once if its parent is no longer the process `parent`.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def spin_briefly() -> None:
    """Let a waiting OpenMP thread go to sleep soon, unless the environment says otherwise.

    By default a waiting thread spins for milliseconds. On a machine with other work it then keeps a core from the thread that
    it waits for, at each of a network's many short layers, and the network becomes many times slower. If threads slept at once
    instead, a quiet machine would be a twelfth slower than with this setting.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))


def keep_freed_memory() -> None:
    """Let the C library keep freed blocks for later use instead of giving them back to the system.

    By default each block of more than 128 kB comes from the system and goes back to it, and the system clears it page by page.
    In training on a processor that takes a sixth of the time of an update. Each update needs the same blocks as the update
    before, so the peak of memory stays the same. Does nothing for a C library without mallopt.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)


class _NoPandas:
    """A finder of modules that says that pandas is not installed.

    None for pandas in sys.modules would say so as well, but pyarrow 26 crashes on it.
    """

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def hide_pandas() -> None:
    """Make pandas look as if it were not installed, to this process.

    Before its first array pyarrow imports pandas where it is installed, to ask whether what it was given is a Series. That
    takes longer than all other imports of a launch together. For processes that run nothing but a command or a worker.
    """
    sys.meta_path.insert(0, _NoPandas())


def hide_wandb() -> None:
    """Make wandb look as if it were not installed, to this process, until show_wandb.

    timm imports it where it is installed. That takes a second, and leaves two temporary folders, since a command ends without
    the shutdown of the interpreter that would remove them.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault("wandb", None)


def show_wandb() -> None:
    """Undo hide_wandb, before an import of wandb that is wanted."""
    if sys.modules.get("wandb", sys) is None:
        del sys.modules["wandb"]
