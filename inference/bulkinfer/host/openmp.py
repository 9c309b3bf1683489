"""How threads of torch wait for each other. Imports no torch: the setting counts only before torch is loaded."""

from __future__ import annotations

import os

_SPINS = 5000  # some tens of microseconds: most waits between the layers of a small network are shorter


def spin_briefly() -> None:
    """Let OpenMP's threads sleep soon where they wait, unless the environment says otherwise.

    By default they spin for milliseconds. On a machine that does anything else as well, a thread that spins keeps the core from
    the one it waits for, at each of a network's many short layers, and the work becomes many times slower. Where they go to
    sleep at once, a quiet machine is a twelfth slower than with this.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
