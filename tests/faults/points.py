"""Named points on the way of a launch, and what can be made to happen there; put into its processes from outside.

Each point is the boundary of a function of inference/, wrapped when its module is imported: the product knows nothing of it.
A Plan, in the file that $BULKINFER_TEST_PLAN names, says what happens at which point. It happens once: the first process to get
there makes the plan's flag file, and a replaced worker or a second launch finds it there. Plans with `poison` happen whenever a
picture of that kind is in hand, for as long as there is no file `off` beside the plan.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.machinery
import inspect
import json
import os
import resource
import signal
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PLAN_VARIABLE = "BULKINFER_TEST_PLAN"
LAUNCHER, WORKER = "launcher", "worker"
FILES = ("part", "job", "run", "summary")  # what is published, and its moments:
MOMENTS = ("begun", "half written", "fsync", "rename", "directory fsync")
_CLOCK_STEPS_S = (0.0, -86_400.0, 3600.0, -1.0, 31_536_000.0)


@dataclass(frozen=True)
class Point:
    """A function of inference/: `target` within `module`, run in `role`; `of` is the class that its last argument must have.

    `touches_files`: what it does can fail for reasons of the file system.
    """

    name: str
    role: str
    module: str
    target: str
    touches_files: bool = False
    of: str = ""


POINTS = (
    Point("dataset opened", LAUNCHER, "manifest", "open_dataset", touches_files=True),
    Point("manifest read", LAUNCHER, "manifest", "Manifest.read", touches_files=True),
    Point("network found", LAUNCHER, "card", "check_graph_files", touches_files=True),
    Point("output claimed", LAUNCHER, "resume", "claim_output", touches_files=True),
    Point("remainder found", LAUNCHER, "resume", "remaining_steps", touches_files=True),
    Point("logs begun", LAUNCHER, "summary", "begin", touches_files=True),
    Point("worker started", LAUNCHER, "worker_handle", "start_worker", touches_files=True),
    Point("steps made", LAUNCHER, "reporter", "Reporter.make_steps"),
    Point("command sent", LAUNCHER, "worker_handle", "WorkerHandle.send"),
    Point("report read", LAUNCHER, "messages", "decode"),
    Point("readiness noted", LAUNCHER, "reporter", "Reporter.on_event", of="Ready"),
    Point("step noted", LAUNCHER, "reporter", "Reporter.on_event", of="StepDone"),
    Point("parts noted", LAUNCHER, "resume", "note_parts", touches_files=True),
    Point("result told", LAUNCHER, "summary", "finish", touches_files=True),
    Point("run file read", WORKER, "messages", "RunSpec.read", touches_files=True),
    Point("graph checked", WORKER, "card", "check_graph_files", touches_files=True),
    Point("session created", WORKER, "providers", "open_session", touches_files=True),
    Point("warmed up", WORKER, "session", "warm_up"),
    Point("command read", WORKER, "messages", "decode"),
    Point("manifest read again", WORKER, "manifest", "Manifest.read_again", touches_files=True),
    Point("picture opened", WORKER, "decode", "os.open"),
    Point("picture read", WORKER, "decode", "read_picture"),
    Point("picture decoded", WORKER, "decode", "decode"),
    Point("picture prepared", WORKER, "preprocess", "prepare"),
    Point("batch filled", WORKER, "loader", "Loader.next_ready"),
    Point("session run", WORKER, "session", "Session.run"),
    Point("rows made", WORKER, "postprocess", "StepRows.fill"),
    Point("table made", WORKER, "results", "to_table"),
    Point("report sent", WORKER, "messages", "encode", of="StepDone"),
    Point("report logged", WORKER, "runlog", "EventLog.write", touches_files=True, of="StepDone"),
    Point("end sent", WORKER, "messages", "encode", of="Ended"),
)

# Of bulkinfer retry, beside those of a launch: see test_retry.py.
RETRY_POINTS = (
    Point("part replaced", LAUNCHER, "merge", "_rewrite", touches_files=True),
    Point("staging put in", LAUNCHER, "retry", "put_in_staged", touches_files=True),
)


@dataclass(frozen=True)
class Plan:
    """What happens: `fault` the `hit`-th time that a process of `role` is `side` ("before", "after") the point.

    Faults: kill, exception, an errno by name, hang, hang_holding_the_lock, swap (of `swaps`: pairs of a file and what is put in
    its place; "" removes it, a number cuts it to so many bytes), swap_and_kill. `poison` lists parts of picture names ("picture
    read"), or colours as "r,g,b" ("session run"). `slow_s` is slept at every picture. `memory_bytes` is what a worker may
    allocate once it reads pictures. `is_clock_stepping`: time.time() jumps. `log`: a file that gets a line for each hit.
    """

    flag: str
    point: str = ""
    side: str = "before"
    role: str = WORKER
    hit: int = 1
    fault: str = ""
    poison: tuple[str, ...] = ()
    swaps: tuple[tuple[str, str], ...] = ()
    slow_s: float = 0.0
    memory_bytes: int = 0
    is_clock_stepping: bool = False
    log: str = ""

    def write(self, path: Path) -> None:
        """For $BULKINFER_TEST_PLAN."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Plan:
        value = json.loads(path.read_text())
        swaps = tuple((target, source) for target, source in value["swaps"])
        return cls(**{**value, "poison": tuple(value["poison"]), "swaps": swaps})


def install_from_environment() -> None:
    """Watch this process if there is a plan, and if it is a launcher or a worker."""
    path = os.environ.get(PLAN_VARIABLE)
    words = " ".join(sys.orig_argv[:6])
    is_worker = "inference.worker_process" in words
    if path and (is_worker or "infer_launch" in words or "bulkinfer retry" in words):
        install(Trap(Plan.read(Path(path)), WORKER if is_worker else LAUNCHER))


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
        if not plan.fault or (point, side) != (plan.point, plan.side) or not (self.role == plan.role or self.is_inline):
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


def _swap(target: str, source: str) -> None:
    if not source:
        os.unlink(target)
    elif source.isdigit():
        os.truncate(target, int(source))
    else:
        os.replace(source, target)


# -- wrapping ------------------------------------------------------------------------------------------------------------


def install(trap: Trap) -> None:
    """Have the modules of inference/ wrapped as they are imported; nothing is imported here."""
    wrappers: dict[str, list[Callable[[Any], None]]] = {
        "inference.paths": [functools.partial(_watch_publishing, trap)],
        "inference.output_lock": [functools.partial(_watch_lock, trap)],
    }
    for point in (*POINTS, *RETRY_POINTS):
        if point.role == trap.role or trap.is_inline:
            wrappers.setdefault(f"inference.{point.module}", []).append(functools.partial(_watch, trap, point))
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
    def publishing(final: Path) -> Iterator[Path]:
        kind = "part" if final.name.startswith("part-") else kinds.get(final.name, "")
        before, stack.kind = getattr(stack, "kind", ""), kind
        try:
            if kind:
                trap.reached(f"{kind} begun", "before")
            with plain(final) as temporary:
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
    plain = module.output_lock

    @contextlib.contextmanager
    def output_lock(folder: Path, *, flag: str) -> Iterator[Any]:
        if flag != "--output":
            with plain(folder, flag=flag) as held:
                yield held
            return
        trap.reached("lock taken", "before")
        with plain(folder, flag=flag) as held:
            trap.reached("lock taken", "after")
            yield held
            trap.reached("lock released", "before")
        trap.reached("lock released", "after")

    module.output_lock = output_lock


def _step_the_clock() -> None:
    """time.time() jumps back and forth by up to a year, from call to call; clocks that only go forward are as they are."""
    plain, calls = time.time, Counter[str]()

    def stepping() -> float:
        calls["time"] += 1
        return plain() + _CLOCK_STEPS_S[calls["time"] % len(_CLOCK_STEPS_S)]

    time.time = stepping
