"""Which fault can happen at which point: every pair is a cell to be run, or is left out for a reason that stands here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from tests.faults.points import FILES, LAUNCHER, LOADER_POINTS, MOMENTS, POINTS, WORKER, Plan

ERRNOS = ("ENOSPC", "EIO", "EACCES")
FAULTS = ("kill", "exception", *ERRNOS)
SIDES = ("before", "after")
LOCK_POINTS = ("lock taken", "lock released")
PUBLISHING = tuple(f"{file} {moment}" for file, moment in product(FILES, MOMENTS))
ALL_POINTS = (*(point.name for point in POINTS), *LOCK_POINTS, *PUBLISHING)
ROLES = {point.name: point.role for point in POINTS} | {
    name: WORKER if name.startswith("part") else LAUNCHER for name in (*LOCK_POINTS, *PUBLISHING)
}

# Moments between which and another one of the table nothing is done that lasts.
SAME_MOMENT = {
    ("network found", "after"): "before dataset opened",
    ("manifest read", "before"): "before dataset opened",
    ("dataset opened", "after"): "before log folder taken",
    ("log folder taken", "after"): "before lock taken",
    ("output claimed", "before"): "after lock taken",
    ("remainder found", "before"): "after output claimed",
    ("remainder found", "after"): "before job begun",
    ("logs begun", "before"): "after job directory fsync",
    ("logs begun", "after"): "before run begun",
    ("worker started", "before"): "after run directory fsync",
    ("readiness noted", "after"): "before steps made",
    ("parts noted", "after"): "after job directory fsync",
    ("result told", "before"): "after job directory fsync",
    ("lock released", "before"): "after result told",
    ("run file read", "after"): "before graph checked",
    ("graph checked", "after"): "before session created",
    ("picture opened", "before"): "before picture read",
    ("picture opened", "after"): "after picture read",
    ("picture read", "after"): "before picture decoded",
    ("picture decoded", "after"): "before picture prepared",
    ("batch filled", "after"): "before session run",
    ("session run", "after"): "before rows made",
    ("table made", "after"): "before part begun",
    ("report sent", "after"): "before report sent: it is encoded, and not written yet",
    ("end sent", "after"): "before end sent: it is encoded, and not written yet",
    **{(f"{file} {one}", "after"): f"before {file} {other}" for file in FILES for one, other in pairwise(MOMENTS)},
}  # fmt: skip
ONLY_READS = (
    "dataset opened", "manifest read", "network found", "remainder found", "run file read", "graph checked", "session created",
    "manifest read again", "picture opened",
)  # fmt: skip
HITS = {  # of the point in its process, where the first one is not the most telling; a job file is written three times
    "command sent": 3, "report read": 3, "step noted": 2, "command read": 2, "picture opened": 7, "picture read": 7,
    "picture decoded": 7, "picture prepared": 7, "batch filled": 2, "session run": 3, "rows made": 2, "table made": 2,
    "report sent": 2, "report logged": 2, **{f"part {moment}": 2 for moment in MOMENTS},
    **{f"job {moment}": 3 for moment in MOMENTS},
}  # fmt: skip
DIES = ("run file read", "command read")  # before or beside what tells of failures: the worker ends, and is replaced


@dataclass(frozen=True)
class Cell:
    """One fault at one point; `code` is the exit code of the launch that it hits (negative: the signal), `errors` how many
    error rows it leaves."""

    point: str
    side: str
    fault: str
    hit: int
    code: int
    errors: int = 0
    engine: str = "local"
    loader_processes: int = 0

    @property
    def name(self) -> str:
        """For test ids and tables."""
        hit = f" #{self.hit}" if self.hit != HITS.get(self.point, 1) else ""
        inline = " (inline)" if self.engine == "inline" else ""
        beside = f" (beside {self.loader_processes} loader processes)" if self.loader_processes else ""
        return f"{self.fault} {self.side} {self.point}{hit}{inline}{beside}"

    def plan(self, flag: str) -> Plan:
        """What the processes of the launch are told."""
        role = ROLES.get(self.point) or next(point.role for point in LOADER_POINTS if point.name == self.point)
        return Plan(flag, self.point, self.side, role, self.hit, self.fault)


def why_not(point: str, side: str, fault: str) -> str:
    """Why a pair is left out; empty if it is a cell."""
    touches_files = {entry.name: entry.touches_files for entry in POINTS}.get(point, True)
    if fault in ERRNOS:
        if side == "after":
            return "what has succeeded does not fail any more"
        if point == "lock released" or (not touches_files and point != "picture opened"):
            return "nothing is asked of a file system there, or its failure is ignored"
        if point in ONLY_READS and fault == "ENOSPC":
            return "reading needs no space"
        if fault == "EACCES" and point.endswith(("half written", " fsync")) and not point.endswith("directory fsync"):
            return "the file is open"
        if fault == "ENOSPC" and point.endswith("directory fsync"):
            return "the rename has taken what space it needs"
        return ""
    if point == "picture opened" and fault == "exception":
        return "an open that fails raises OSError"
    if other := SAME_MOMENT.get((point, side)):
        return f"the same moment as {other}"
    return ""


def expected_code(point: str, fault: str) -> int:
    """The exit code of a local launch that is hit."""
    if fault == "kill":
        return -9 if ROLES[point] == LAUNCHER else 0
    if point == "picture opened":
        return 3
    if point in DIES or point == "session run":  # replaced, and run again in halves
        return 0
    return 1


def _cells() -> list[Cell]:
    cells = [
        Cell(point, side, fault, HITS.get(point, 1), expected_code(point, fault),
             errors=int(point == "picture opened" and fault in ERRNOS))
        for point, side, fault in product(ALL_POINTS, SIDES, FAULTS) if not why_not(point, side, fault)
    ]  # fmt: skip
    job = [
        cell
        for cell in cells
        if (cell.point, cell.fault) in (("job half written", "kill"), ("job rename", "kill"), ("job fsync", "EIO"))
    ]
    cells += [replace(cell, hit=hit) for cell in job for hit in (1, 2)]
    cells += [replace(cell, hit=1) for cell in cells if cell.point == "session run"]  # the warm-up
    in_one_process = [cell for cell in cells if cell.fault == "exception" and ROLES[cell.point] == WORKER]
    return cells + [replace(cell, engine="inline") for cell in in_one_process if _is_inline(cell)]


def _is_inline(cell: Cell) -> bool:
    """Points at which the engine that runs everything in the launcher is looked at, too."""
    return cell.side == "before" and cell.point in (
        "session created",
        "picture read",
        "session run",
        "rows made",
        "part rename",
        "report logged",
    )


def _short(cells: Sequence[Cell]) -> Iterator[Cell]:
    """One cell of every point, for the short form of tools/test: an errno, an exception or a kill.

    They take turns from point to point.
    """
    for number, point in enumerate(ALL_POINTS):
        here = {cell.fault: cell for cell in reversed(cells) if cell.point == point and cell.engine == "local"}
        faults = [fault for fault in ERRNOS if fault in here] or [fault for fault in ("exception", "kill") if fault in here]
        yield here[faults[number % len(faults)]]


# Beside two loader processes: a fault of one of them, or of the worker while they are at work.
LOADER_CELLS = (
    Cell("picture read", "before", "kill", 5, 0, loader_processes=2),
    Cell("picture read", "before", "exception", 5, 1, loader_processes=2),
    Cell("picture opened", "before", "EIO", 5, 3, errors=1, loader_processes=2),
    Cell("picture decoded", "before", "kill", 5, 0, loader_processes=2),
    Cell("picture prepared", "after", "kill", 5, 0, loader_processes=2),
    Cell("loader message sent", "before", "kill", 1, 0, loader_processes=2),
    Cell("loader message sent", "before", "exception", 1, 0, loader_processes=2),
    Cell("request read", "after", "kill", 2, 0, loader_processes=2),
    Cell("request read", "after", "exception", 2, 0, loader_processes=2),
    Cell("reply made", "before", "kill", 2, 0, loader_processes=2),
    Cell("reply made", "after", "kill", 2, 0, loader_processes=2),
    Cell("loaders started", "after", "kill", 1, 0, loader_processes=2),
    Cell("loader asked", "before", "kill", 3, 0, loader_processes=2),
    Cell("loader asked", "after", "kill", 3, 0, loader_processes=2),
    Cell("session run", "before", "kill", 3, 0, loader_processes=2),
    Cell("part rename", "before", "kill", 2, 0, loader_processes=2),
)
CELLS = tuple(_cells())
SHORT_CELLS = tuple(_short(CELLS))
LEFT_OUT = {
    (point, side, fault): reason
    for point, side, fault in product(ALL_POINTS, SIDES, FAULTS)
    if (reason := why_not(point, side, fault))
}
