"""Named points on the way of a launch, and plans of what happens there; trap.py does it, wrapping.py puts it in from outside.

Each point is the boundary of a function of bulkinfer, wrapped when its module is imported: the product knows nothing of it.
A Plan, in the file that $BULKINFER_TEST_PLAN names, says what happens at which point. It happens once: the first process to get
there makes the plan's flag file, and a replaced worker or a second launch finds it there. Plans with `poison` happen whenever a
picture of that kind is in hand, for as long as there is no file `off` beside the plan.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

PLAN_VARIABLE = "BULKINFER_TEST_PLAN"
LAUNCHER, WORKER, LOADER = "launcher", "worker", "loader"
FILES = ("part", "job", "run", "summary")  # what is published, and its moments:
MOMENTS = ("begun", "half written", "fsync", "rename", "directory fsync")


@dataclass(frozen=True)
class Point:
    """A function of bulkinfer: `target` within `module`, run in `role`; `of` is the class that its last argument must have.

    `touches_files`: what it does can fail for reasons of the file system.
    """

    name: str
    role: str
    module: str
    target: str
    touches_files: bool = False
    of: str = ""


POINTS = (
    Point("dataset opened", LAUNCHER, "records.dataset", "open_dataset", touches_files=True),
    Point("manifest read", LAUNCHER, "records.manifest", "Manifest.read", touches_files=True),
    Point("network found", LAUNCHER, "model.card", "check_graph_files", touches_files=True),
    Point("log folder taken", LAUNCHER, "results.log_folder", "take_log_dir", touches_files=True),
    Point("output claimed", LAUNCHER, "launch.claim", "claim_output", touches_files=True),
    Point("remainder found", LAUNCHER, "launch.claim", "remaining_steps", touches_files=True),
    Point("logs begun", LAUNCHER, "launch.reporting.summary", "begin", touches_files=True),
    Point("worker started", LAUNCHER, "launch.engines.worker_handle", "start_worker", touches_files=True),
    Point("steps made", LAUNCHER, "launch.reporting.reporter", "Reporter.make_steps"),
    Point("command sent", LAUNCHER, "launch.engines.worker_handle", "WorkerHandle.send"),
    Point("report read", LAUNCHER, "worker.protocol", "decode"),
    Point("readiness noted", LAUNCHER, "launch.reporting.reporter", "Reporter.on_event", of="Ready"),
    Point("step noted", LAUNCHER, "launch.reporting.reporter", "Reporter.on_event", of="StepDone"),
    Point("parts noted", LAUNCHER, "launch.close", "note_parts", touches_files=True),
    Point("result told", LAUNCHER, "launch.reporting.summary", "finish", touches_files=True),
    Point("run file read", WORKER, "worker.protocol", "RunSpec.read", touches_files=True),
    Point("graph checked", WORKER, "model.card", "check_graph_files", touches_files=True),
    Point("session created", WORKER, "runtime.onnxruntime_graph", "open_session", touches_files=True),
    Point("command read", WORKER, "worker.protocol", "decode"),
    Point("manifest read again", WORKER, "records.manifest", "Manifest.read_again", touches_files=True),
    Point("picture opened", WORKER, "images.decode", "os.open"),
    Point("picture read", WORKER, "images.decode", "read_picture"),
    Point("picture decoded", WORKER, "images.decode", "decode"),
    Point("picture prepared", WORKER, "images.preprocess", "prepare"),
    Point("batch filled", WORKER, "worker.loader", "Loader.next_ready"),
    Point("session run", WORKER, "runtime.session", "Session.run"),
    Point("rows made", WORKER, "results.rows", "StepRows.fill"),
    Point("table made", WORKER, "results.parquet_parts", "to_table"),
    Point("report sent", WORKER, "worker.protocol", "encode", of="StepDone"),
    Point("report logged", WORKER, "worker.event_log", "EventLog.write", touches_files=True, of="StepDone"),
    Point("end sent", WORKER, "worker.protocol", "encode", of="Ended"),
)

# Beside loader processes, where the worker's points of pictures are theirs.
LOADER_POINTS = (
    Point("loaders started", WORKER, "worker.remote_loader", "LoaderProcesses.of"),
    Point("loader asked", WORKER, "worker.remote_loader", "LoaderProcesses.load_chunk"),
    Point("loader message sent", LOADER, "worker.loader_messages", "Pipes.send"),  # the first says that it is ready
    Point("request read", LOADER, "worker.loader_messages", "Request.decode"),
    Point("reply made", LOADER, "worker.loader_messages", "Reply.encode"),
)

# Of bulkinfer retry, beside those of a launch: see test_retry.py.
RETRY_POINTS = (
    Point("part replaced", LAUNCHER, "launch.retry_merge", "_rewrite", touches_files=True),
    Point("staging put in", LAUNCHER, "launch.retry", "put_in_staged", touches_files=True),
)


@dataclass(frozen=True)
class Plan:
    """What happens: `fault` the `hit`-th time that a process of `role` is `side` ("before", "after") the point. What is to
    happen to a worker at a picture happens to its loader process where it has one.

    Faults: kill, exception, an errno by name, hang, hang_holding_the_lock, swap (of `swaps`: pairs of a file and what is put in
    its place; "" removes it, a number cuts it to so many bytes), swap_and_kill. `poison` lists parts of picture names ("picture
    read"), or colours as "r,g,b" ("session run"). `slow_s` is slept at every picture. Once the folder `held` has a part, no
    further picture is read until there is a file `released` beside the plan. `memory_bytes` is what a worker may allocate once
    it reads pictures. `is_clock_stepping`: time.time() jumps. `log`: a file that gets a line for each hit.
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
    held: str = ""
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
