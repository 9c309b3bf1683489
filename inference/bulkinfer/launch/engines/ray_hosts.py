"""The nodes that a launch uses: each is checked before it gets workers, and shut out from the results before it is given up."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, RunError, UsageError, first_line
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.json_file import write_json
from bulkinfer.files.user_path import real_path
from bulkinfer.host.cores import CoreBudget, HostPlan, ThreadPlan
from bulkinfer.host.versions import versions
from bulkinfer.launch.engines.ray_cluster import Cluster, Node
from bulkinfer.launch.engines.ray_node import Facts, Question
from bulkinfer.worker.protocol import RunSpec

log = logging.getLogger("bulkinfer")

NODE_FILES = "node-*.json"  # in the log folder of a launch

_AGAIN_S = 30.0  # a node that could not be reached, and is not known to be gone, is checked again after so long
_NODES_S = 2.0  # between two questions for the nodes that the cluster has
_JOIN_S = 30.0  # so long a node that has joined may be unknown to the part of Ray that hands out work
_CHECK_S = 60.0  # a launch waits so long at most for the first nodes to be checked
# Ray itself compares Python; the rows of a part do not depend on the version of pyarrow.
_DECIDES_NOTHING = {"python", "pyarrow"}


@dataclass(eq=False)
class Host:
    """A node with its plan, and the files by which its workers run: the run file for its threads, and a permit.

    A worker reads the permit before it publishes a part, like the locks of the launcher. So a node that cannot be reached, and
    may still be at work, publishes nothing once its permit has been removed.
    """

    node: Node
    plan: ThreadPlan
    num_cpus: float  # of the node, for each worker
    num_gpus: float
    run_file: Path
    permit: Path

    @property
    def needs(self) -> str:
        """What Ray must have free there for a worker."""
        gpus = f" and {self.num_gpus:g} GPU" if self.num_gpus else ""
        return f"{self.num_cpus:g} CPU{gpus} of {self.node.name}"

    def shut_out(self) -> None:
        """Let no worker of this host publish anything any more."""
        self.permit.unlink(missing_ok=True)
        self.run_file.unlink(missing_ok=True)


class Hosts:
    """Makes hosts of the nodes of a cluster, for the launch of `run_file`. `plan_host` is as in EngineOptions.

    `free` are the workers that hosts have room for: the host, and the number of the worker there. `later` takes a function and
    has the thread of the launch call it. Before `has_begun`, a node that is not fit is a `refusal`; later it gets no work.
    `gone` are hosts whose nodes are not alive any more. A thread asks the cluster, which may take its time to answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_file: Path,
        plan_host: Callable[[CoreBudget, int], HostPlan | None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._cluster, self._run_file, self._plan_host, self._later = cluster, real_path(run_file), plan_host, later
        self._spec = RunSpec.read(run_file)
        self._graph = str(Path(self._spec.session.graph).absolute())
        self._known: dict[str, Host | None] = {}  # by the id of the node; None: it is being checked, or gets no work
        self._lost_at: dict[str, float] = {}  # by the id of a node, by time.monotonic()
        self._joined_at: dict[str, float] = {}
        self._count = 0
        self._checking: set[str] = set()
        self._began_at = self._answered_at = time.monotonic()
        self._end = threading.Event()
        self.free: list[tuple[Host, int]] = []
        self.gone: list[Host] = []
        self.has_begun = False
        self.refusal: BulkinferError | None = None

    def __enter__(self) -> Hosts:
        for path in self._run_file.parent.glob(NODE_FILES):  # of a launcher that was killed
            path.unlink(missing_ok=True)
        threading.Thread(target=self._ask, name="ray nodes", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Shut all hosts out, and remove their files."""
        self._end.set()
        for host in self.hosts:
            host.shut_out()

    @property
    def are_checked(self) -> bool:
        """True if every node that was there at the beginning has been checked, or takes too long."""
        waited_s = time.monotonic() - self._began_at
        return self.has_begun or (self._answered_at > self._began_at and not self._checking) or waited_s > _CHECK_S

    @property
    def silent_s(self) -> float:
        """For how many seconds the cluster has not said which nodes it has."""
        return time.monotonic() - self._answered_at

    @property
    def is_changed(self) -> bool:
        """True if there is something for the launch to do at once."""
        return bool(self.gone or self.refusal or (self.free and not self.has_begun))

    @property
    def hosts(self) -> list[Host]:
        """Those that can run workers."""
        return [host for host in self._known.values() if host is not None]

    def _ask(self) -> None:
        """Ask for the nodes again and again, in a thread of its own."""
        try:
            while not self._end.is_set():
                self._later(partial(self._compare, self._cluster.nodes()))
                self._end.wait(_NODES_S)
        except Exception as error:  # Ray documents no classes
            if not self._end.is_set():
                self._later(
                    partial(self._refuse, RunError(f"the Ray cluster does not say which nodes it has: {first_line(error)}"))
                )

    def _compare(self, alive: dict[str, Node]) -> None:
        """Check nodes that have joined, and find hosts that are gone."""
        self._answered_at = now = time.monotonic()
        for key in [key for key, host in self._known.items() if key not in alive and host is None]:
            del self._known[key]
        self._checking.intersection_update(alive)
        for key, node in alive.items():
            if key not in self._known and now - self._lost_at.get(key, now - _AGAIN_S) >= _AGAIN_S:
                self._known[key] = None
                self._joined_at.setdefault(key, now)
                self._checking.add(key)
                self._cluster.inspect(node, self._question(), partial(self._hear, node))
        self.gone = [host for key, host in self._known.items() if key not in alive and host is not None]

    def give_up(self, host: Host) -> None:
        """A node cannot be reached any more: it publishes nothing from now on."""
        host.shut_out()
        self.free = [each for each in self.free if each[0] is not host]
        self.gone = [each for each in self.gone if each is not host]
        self._known.pop(host.node.id, None)
        self._lost_at[host.node.id] = time.monotonic()

    # -- the check of a node ---------------------------------------------------------------------------------------------

    def _question(self) -> Question:
        spec = self._spec
        return Question(
            str(self._run_file), file_sha256(self._run_file), spec.locks, self._graph, spec.batch_size, spec.graph_sha256,
            spec.network_address,
        )  # fmt: skip

    def _hear(self, node: Node, found: Facts | BaseException) -> None:
        self._later(lambda: self._note(node, found))

    def _note(self, node: Node, found: Facts | BaseException) -> None:
        """A node has been checked."""
        if node.id not in self._checking:  # it is gone by now
            return
        is_joining = time.monotonic() - self._joined_at[node.id] < _JOIN_S
        if is_joining and isinstance(found, BaseException) and self._cluster.is_unreachable(found):
            self._known.pop(node.id, None)  # it is checked again
            return
        self._checking.discard(node.id)
        try:
            if (host := self._host_of(node, found)) is not None:
                self._known[node.id] = host
                self.free += [(host, place) for place in range(host.plan.num_devices)]
        except UsageError as error:
            if self.has_begun:
                log.warning(f"warning: {error}; it gets no work")
            else:
                self._refuse(error)

    def _refuse(self, error: BulkinferError) -> None:
        self.refusal = self.refusal or error

    def _host_of(self, node: Node, found: Facts | BaseException) -> Host | None:
        """The host that a node becomes, its files written; None if it has no room for a worker.

        Raises UsageError if it lacks something, or its cores cannot serve what was asked for.
        """
        if isinstance(found, BaseException):
            raise UsageError(
                f"{node.name} cannot be checked; it needs this version of bulkinfer, and Ray says: {_last_line(found)}"
            )
        if problem := found.problem or _other_version(found.versions):
            raise UsageError(f"{node.name} {problem}")
        budget = found.cores
        if node.num_cpus:  # what Ray may give away
            budget = replace(budget, quota=float(min(node.num_cpus, budget.quota or node.num_cpus)))
        elif not node.num_gpus:
            return None
        try:
            plan = self._plan_host(budget, node.num_gpus)
        except UsageError as error:
            raise UsageError(f"{node.name}: {error}") from None
        if plan is None:
            return None
        cores, workers = budget.usable if node.num_cpus else 0, plan.threads.num_devices
        num_cpus = cores // workers if workers <= cores else cores / workers
        return Host(node, plan.threads, num_cpus, plan.gpus_per_worker, *self._write_files(node, plan.threads))

    def _write_files(self, node: Node, threads: ThreadPlan) -> tuple[Path, Path]:
        """The run file of a host, with its threads and no cached graph, which is made for one processor; and its permit."""
        self._count += 1
        run_file = self._run_file.with_name(f"node-{self._count}.run.json")
        permit, token = run_file.with_name(f"node-{self._count}.permit.json"), secrets.token_hex(16)
        write_json(permit, {"token": token, "node": node.id})
        changes: dict[str, Any] = {
            "streams": threads.streams, "threads_per_stream": threads.threads_per_stream, "device": threads.devices[0]
        }  # fmt: skip
        session = replace(self._spec.session, graph=self._graph, cached_graph="", cached_stamp="", **changes)
        replace(
            self._spec,
            session=session,
            devices=threads.devices[:1],
            num_workers=threads.num_workers,
            loader_processes=threads.loader_processes,
            locks=self._spec.locks | {str(permit): token},
        ).write(run_file)
        return run_file, permit


def _other_version(there: dict[str, str]) -> str:
    """What differs, as the end of a sentence about a node; empty if all packages that decide what rows hold are the same."""
    here = versions()
    for name in sorted({*here, *there} - _DECIDES_NOTHING):
        if here.get(name) != there.get(name):
            has, own = (f"{name} {found[name]}" if name in found else f"no {name}" for found in (there, here))
            return f"has {has}, and the launcher's host {own}: install the same version on both"
    return ""


def _last_line(error: BaseException) -> str:
    """What an error of a remote call says last, which is its cause."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
