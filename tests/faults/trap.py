"""What happens in a process that has come to the point of its plan."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.points import LAUNCHER, LOADER, WORKER, Plan


class Trap:
    """Counts the hits of this process, and does what the plan says."""

    def __init__(self, plan: Plan, role: str) -> None:
        self.plan, self.role = plan, role
        self.is_inline = role == LAUNCHER and "--engine=inline" in sys.orig_argv
        self._hits: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def reached(self, point: str, side: str, *, hand: tuple[Any, ...] = (), prepare: Callable[[], None] | None = None) -> None:
        """A thread is before or after a point with `hand` as arguments; `prepare` is done right before the fault."""
        plan = self.plan
        with self._lock:
            self._hits[point, side] += 1
            hit = self._hits[point, side]
        if plan.log:
            with Path(plan.log).open("a") as file:
                file.write(f"{self.role}\t{point}\t{side}\n")
        if (point, side) == ("picture read", "before"):
            self._at_a_picture()
        is_meant = self.role == plan.role or self.is_inline or (self.role, plan.role) == (LOADER, WORKER)
        if not plan.fault or (point, side) != (plan.point, plan.side) or not is_meant:
            return
        if plan.poison:
            is_due = any(_is_in_hand(poison, hand) for poison in plan.poison) and not Path(plan.flag).with_name("off").exists()
        else:
            is_due = hit == plan.hit
        if is_due and self._raise_flag():
            if prepare is not None:
                prepare()
            self._do()

    def _at_a_picture(self) -> None:
        time.sleep(self.plan.slow_s)
        released = Path(self.plan.flag).with_name("released")
        while self.plan.held and not released.exists() and any(Path(self.plan.held).glob("part-*")):
            time.sleep(0.01)
        with self._lock:
            if self.plan.memory_bytes and self.role == WORKER:
                used = next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines()
                            if line.startswith("VmSize"))  # fmt: skip
                _, hard = resource.getrlimit(resource.RLIMIT_AS)
                if hard == resource.RLIM_INFINITY:
                    resource.setrlimit(resource.RLIMIT_AS, (used + self.plan.memory_bytes,) * 2)

    def _raise_flag(self) -> bool:
        """False if somebody else was faster; of a poison everybody gets it."""
        try:
            with Path(self.plan.flag).open("x") as file:
                file.write(f"{self.role} {os.getpid()}\n")
        except FileExistsError:
            return bool(self.plan.poison)
        return True

    def _do(self) -> None:
        fault = self.plan.fault
        if fault.startswith("swap"):
            if self.role == WORKER:
                _wait_for_all_networks()
            for target, source in self.plan.swaps:
                _swap(target, source)
        if fault in ("kill", "swap_and_kill"):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the kernel may take its time
        elif fault == "hang":
            threading.Event().wait()
        elif fault == "hang_holding_the_lock":
            import ctypes

            ctypes.PyDLL(None).sleep(3600)
        elif fault == "exception":
            raise RuntimeError("made by the fault harness")
        elif fault != "swap":
            code = getattr(errno, fault)
            raise OSError(code, os.strerror(code))


def _is_in_hand(poison: str, hand: tuple[Any, ...]) -> bool:
    """Whether a picture of that kind is among the arguments: a path that holds `poison`, or a batch with that colour."""
    if "," not in poison:
        return any(poison.encode() in value for value in hand if isinstance(value, bytes))
    colour = [int(part) for part in poison.split(",")]
    return any((value[:, 0, 0] == colour).all(axis=-1).any() for value in hand if hasattr(value, "ndim"))


def _wait_for_all_networks() -> None:
    """Until each worker of this launch has loaded its network: it would find some files of the old one and some of the new."""
    (run_file,) = (Path(word) for word in sys.argv if word.endswith("run.json"))
    while not all("loaded in" in log.read_text() for log in run_file.parent.glob("worker-*.log")):
        time.sleep(0.01)


def _swap(target: str, source: str) -> None:
    if not source:
        os.unlink(target)
    elif source.isdigit():
        os.truncate(target, int(source))
    else:
        os.replace(source, target)
