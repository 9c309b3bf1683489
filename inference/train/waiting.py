"""How threads of torch wait for each other. Imports no torch: the setting counts only before torch is loaded."""

from __future__ import annotations

import os


def wait_asleep() -> None:
    """Let OpenMP's threads sleep where they wait, unless the environment says otherwise.

    By default they spin. On a machine that does anything else as well, a thread that spins keeps the core from the one it waits
    for, at each of a network's many short layers: training becomes many times slower.
    """
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
