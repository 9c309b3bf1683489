"""The modules of bulkinfer wrapped as they are imported, so that a trap is told of every point that is reached."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import inspect
import os
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.points import LAUNCHER, LOADER, LOADER_POINTS, PLAN_VARIABLE, POINTS, RETRY_POINTS, WORKER, Plan, Point
from tests.faults.trap import Trap

_CLOCK_STEPS_S = (0.0, -86_400.0, 3600.0, -1.0, 31_536_000.0)


def install_from_environment() -> None:
    """Watch this process if there is a plan, and if it is a launcher, a worker or a loader process."""
    path = os.environ.get(PLAN_VARIABLE)
    words = " ".join(sys.orig_argv[:6])
    roles = {"bulkinfer.worker.process": WORKER, "bulkinfer.worker.loader_process": LOADER}
    roles |= {"infer_launch": LAUNCHER, "bulkinfer retry": LAUNCHER}
    if path and (role := next((role for name, role in roles.items() if name in words), None)):
        install(Trap(Plan.read(Path(path)), role))


def install(trap: Trap) -> None:
    """Have the modules of bulkinfer wrapped as they are imported; nothing is imported here."""
    wrappers: dict[str, list[Callable[[Any], None]]] = {
        "bulkinfer.files.atomic": [functools.partial(_watch_publishing, trap)],
        "bulkinfer.files.output_lock": [functools.partial(_watch_lock, trap)],
    }
    for point in (*POINTS, *LOADER_POINTS, *RETRY_POINTS):
        if point.role == trap.role or trap.is_inline or (trap.role == LOADER and point.name.startswith("picture ")):
            wrappers.setdefault(f"bulkinfer.{point.module}", []).append(functools.partial(_watch, trap, point))
    sys.meta_path.insert(0, _Finder(wrappers))
    if trap.plan.is_clock_stepping:
        _step_the_clock()


class _Finder:
    """Finds the modules to be wrapped as Python would, and wraps them once they have been executed."""

    def __init__(self, wrappers: dict[str, list[Callable[[Any], None]]]) -> None:
        self._wrappers = wrappers

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._wrappers:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None, name
        assert spec.loader is not None, name
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            for wrap in self._wrappers[name]:
                wrap(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Namespace:
    """Stands in for a module in one other module's globals, so that its functions can be wrapped for that one only."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _owner(module: Any, path: list[str]) -> Any:
    owner = module
    for name in path:
        inner = getattr(owner, name)
        if isinstance(inner, types.ModuleType):
            inner = _Namespace(inner)
            setattr(owner, name, inner)
        owner = inner
    return owner


def _watch(trap: Trap, point: Point, module: Any) -> None:
    *path, name = point.target.split(".")
    owner = _owner(module, path)
    static = inspect.getattr_static(owner, name, None)
    plain = static.__func__ if isinstance(static, classmethod) else getattr(owner, name)

    @functools.wraps(plain)
    def watched(*args: Any, **options: Any) -> Any:
        if point.of and not any(type(value).__name__ == point.of for value in args):
            return plain(*args, **options)
        trap.reached(point.name, "before", hand=args)
        result = plain(*args, **options)
        trap.reached(point.name, "after", hand=args)
        return result

    setattr(owner, name, classmethod(watched) if isinstance(static, classmethod) else watched)


def _watch_publishing(trap: Trap, module: Any) -> None:
    """The moments of a file of ours on its way to its name, as "part fsync" and so on."""
    plain, stack = module.publishing, threading.local()
    kinds = {"_job.json": "job", "run.json": "run", "summary.json": "summary"}

    @contextlib.contextmanager
    def publishing(final: Path, folder: Path | None = None, *, is_durable: bool = True) -> Iterator[Path]:
        kind = "part" if final.name.startswith("part-") else kinds.get(final.name, "")
        before, stack.kind = getattr(stack, "kind", ""), kind
        try:
            if kind:
                trap.reached(f"{kind} begun", "before")
            with plain(final, folder, is_durable=is_durable) as temporary:
                yield temporary
                if kind:
                    cut = functools.partial(os.truncate, temporary, temporary.stat().st_size // 2)
                    trap.reached(f"{kind} half written", "before", prepare=cut)
            if kind:
                trap.reached(f"{kind} directory fsync", "after")
        finally:
            stack.kind = before

    def watch_call(name: str, moment_of: Callable[[Any], str]) -> None:
        call = getattr(os, name)

        def watched(*args: Any) -> Any:
            if kind := getattr(stack, "kind", ""):
                trap.reached(f"{kind} {moment_of(args[0])}", "before")
            return call(*args)

        setattr(module.os, name, watched)

    module.publishing = publishing
    module.os = _Namespace(os)
    watch_call("fsync", lambda descriptor: "directory fsync" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync")
    watch_call("rename", lambda _: "rename")


def _watch_lock(trap: Trap, module: Any) -> None:
    """The lock of the output folder (that of the logs is taken before and released after it)."""
    plain = module.results_lock

    @contextlib.contextmanager
    def results_lock(output: Path, **options: Any) -> Iterator[Any]:
        trap.reached("lock taken", "before")
        with plain(output, **options) as held:
            trap.reached("lock taken", "after")
            yield held
            trap.reached("lock released", "before")
        trap.reached("lock released", "after")

    module.results_lock = results_lock


def _step_the_clock() -> None:
    """time.time() jumps back and forth by up to a year, from call to call; clocks that only go forward are as they are."""
    plain, calls = time.time, Counter[str]()

    def stepping() -> float:
        calls["time"] += 1
        return plain() + _CLOCK_STEPS_S[calls["time"] % len(_CLOCK_STEPS_S)]

    time.time = stepping
