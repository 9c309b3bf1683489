"""The engine of a Ray cluster: an actor beside each worker process, on every node that has room for workers.

A thread of Ray reports what has arrived; the launch itself runs in one thread, as with processes of this host.
"""

from __future__ import annotations

import logging
import queue
import select
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.engines import EngineOptions, Hooks
from bulkinfer.launch.engines.dispatch import Dispatcher
from bulkinfer.launch.engines.ray_cluster import Cluster, connected, next_reports
from bulkinfer.launch.engines.ray_hosts import Host, Hosts
from bulkinfer.launch.engines.ray_node import Reports
from bulkinfer.launch.engines.ray_worker import RayWorker
from bulkinfer.launch.engines.waking import Waking, waking_on_signals
from bulkinfer.records.sources.folder import counted
from bulkinfer.worker.protocol import decode

log = logging.getLogger("bulkinfer")

_LOOK_S = 1.0  # between two questions to the launch whether it may go on
_SILENT_S = 30.0  # without an answer of the head; after a minute Ray ends the process
_WITHOUT_NODES_S = 120.0  # without a worker, until the launch gives up
_PENDING_S = 60.0  # until a warning that a worker does not start
_IDLE_REPORTS_PER_S = 200.0  # of all workers that have nothing to report; each reports once a second unless they are too many


class RayEngine:
    """Runs all steps on the nodes of a cluster; a worker that dies is replaced there, and nodes that join get work."""

    def __init__(self, run_file: Path, plan: ThreadPlan, hooks: Hooks, options: EngineOptions) -> None:
        del plan  # of this host; the nodes have plans of their own
        self._run_file, self._hooks, self._options = run_file, hooks, options
        self._dispatcher = Dispatcher(hooks, 0, batch_size=options.batch_size, own_partition=False)
        self._arrived: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._workers: dict[int, RayWorker] = {}  # also those that were started, and not heard of yet
        self._plans: dict[str, ThreadPlan] = {}  # of nodes that were given workers, by their names
        self._next_index = 0
        self._looked_at = self._worked_at = time.monotonic()
        self._cluster: Cluster
        self._hosts: Hosts
        self._waking: Waking

    @property
    def signal(self) -> int | None:
        """See Engine."""
        return self._dispatcher.signal

    @property
    def replaced(self) -> list[str]:
        """See Engine."""
        return self._dispatcher.replaced

    @property
    def nodes(self) -> dict[str, ThreadPlan]:
        """See Engine."""
        return self._plans

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker, a node or a hook refused with."""
        assert self._options.plan_host is not None, "who chooses this engine says how hosts are planned"
        with connected(self._options.ray_address) as cluster, waking_on_signals(self._dispatcher.on_signal) as self._waking:
            self._cluster = cluster
            with Hosts(cluster, self._run_file, self._options.plan_host, self._later) as self._hosts:
                try:
                    self._wait()
                finally:
                    for worker in self._workers.values():
                        worker.kill()
        if self._dispatcher.refusal:
            raise self._dispatcher.refusal

    def _wait(self) -> None:
        """Take what nodes and workers report until all workers have ended."""
        while self._goes_on():
            due = self._looked_at + _LOOK_S if self._dispatcher.deadline is None else self._dispatcher.deadline
            select.select([self._waking.descriptor], [], [], max(0.0, due - time.monotonic()))
            self._waking.clear()
            for _ in range(self._arrived.qsize()):
                self._arrived.get()()
            now = time.monotonic()
            if self._dispatcher.deadline is not None:
                if now >= self._dispatcher.deadline:
                    return
            elif now - self._looked_at >= _LOOK_S or self._hosts.is_changed:
                self._look(now)

    def _goes_on(self) -> bool:
        """Without a worker there may be nodes that join, until it is over."""
        return bool(self._dispatcher.workers) or not (self._dispatcher.is_over or self._dispatcher.deadline is not None)

    def _later(self, act: Callable[[], None]) -> None:
        """A thread of Ray calls this with what is to be done about something that has arrived."""
        self._arrived.put(act)
        self._waking.wake()

    # -- nodes -----------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """See whether the launch may go on, which nodes there are, and whether there is room for workers."""
        self._looked_at = now
        for host in list(self._hosts.gone):
            self._lose(host)
        reason = self._hooks.must_stop() or self._hosts.refusal
        if reason is None and self._hosts.silent_s > _SILENT_S:
            reason = RunError(
                f"the Ray cluster at {self._cluster.name} has not answered for {_SILENT_S:g} s: once it runs again, the same "
                "command continues"
            )
        if reason is None and self._hosts.are_checked:
            self._staff()
            reason = self._without_workers(now)
        if reason is not None:
            self._dispatcher.refuse(reason)
        for worker in self._workers.values():
            if not worker.is_running and now - worker.started_at > _PENDING_S and not worker.is_late:
                worker.is_late = True
                log.warning(f"warning: worker {worker.index} waits for {worker.host.needs}, which something else uses")

    def _staff(self) -> None:
        """Start workers where there is room, evenly over the hosts, and as many as --num_devices allows."""
        hosts, most = self._hosts, self._options.num_devices
        running = len(self._workers)
        hosts.free.sort(key=lambda each: each[1])
        while hosts.free and (not most or running < most):
            host, place = hosts.free.pop(0)
            self._start(host, place, self._next_index, takes_over=False)
            if hosts.has_begun:
                log.info(f"ray: worker {self._next_index} starts on {host.node.name}")
            self._next_index += 1
            running += 1
        self._dispatcher.num_workers = running
        if not hosts.has_begun and hosts.hosts:
            hosts.has_begun = True
            log.info(f"ray: {self._cluster.name}: {counted(running, 'worker')} on {counted(len(hosts.hosts), 'node')}")
            for host in hosts.hosts:
                log.info(f"  {host.node.name}: {host.plan}")

    def _without_workers(self, now: float) -> BulkinferError | None:
        """The error that ends a launch for which no node runs a worker, or none any more."""
        if self._workers:
            self._worked_at = now
        elif not self._hosts.has_begun:
            return UsageError(
                f"the Ray cluster at {self._cluster.name} has no node with room for a worker: it needs a CPU, or a GPU where "
                "--device asks for one"
            )
        elif now - self._worked_at > _WITHOUT_NODES_S:
            return RunError(f"no node of the Ray cluster at {self._cluster.name} runs a worker any more: run the command again")
        return None

    def _lose(self, host: Host) -> None:
        """A node is gone, or cannot be reached: what its workers held runs again."""
        self._hosts.give_up(host)
        log.warning(f"{host.node.name} is gone or cannot be reached: what its workers held runs again")
        for worker in [worker for worker in self._workers.values() if worker.host is host]:
            self._drop(worker)
            if worker.is_running:
                self._dispatcher.lost(worker, f"lost with {host.node.name}", is_clean=False, is_wanted=False)

    # -- workers ---------------------------------------------------------------------------------------------------------

    def _start(self, host: Host, place: int, index: int, *, takes_over: bool) -> None:
        words = (str(host.run_file), index, host.plan, place, takes_over, self._options.stall_timeout_s)
        self._plans[host.node.name] = host.plan
        actor = self._cluster.start(host.node, host.num_cpus, host.num_gpus, *words)
        self._workers[index] = worker = RayWorker(index, host, place, self._cluster, actor)
        self._ask(worker)

    def _ask(self, worker: RayWorker) -> None:
        """Have the actor send what its worker reports next; where nothing happens, how far it has come."""
        wait_s = max(_LOOK_S, len(self._workers) / _IDLE_REPORTS_PER_S)
        next_reports(worker.actor, wait_s, lambda found: self._later(partial(self._take, worker, found)))

    def _take(self, worker: RayWorker, found: Reports | BaseException) -> None:
        """Something has come from the actor of a worker."""
        if worker.is_gone:
            return
        if isinstance(found, BaseException):
            self._broken(worker, found)
            return
        self._heard_of(worker)
        self._hooks.on_progress(worker.index, found.finished)
        for line in found.lines:
            self._dispatcher.handle(worker, decode(line))
        if found.ending is None:
            self._ask(worker)
        else:
            worker.note_end(found.ending)
            self._gone(worker, f"{found.ending.how} on {worker.host.node.name}", is_clean=found.ending.is_clean)

    def _heard_of(self, worker: RayWorker) -> None:
        if not worker.is_running:
            worker.is_running = True
            self._dispatcher.add(worker)

    def _broken(self, worker: RayWorker, error: BaseException) -> None:
        """Ray has lost the actor, alone or with its node."""
        if self._cluster.is_unreachable(error):
            self._lose(worker.host)
            return
        self._heard_of(worker)
        worker.note_error(error)
        self._gone(worker, f"ended with its Ray actor on {worker.host.node.name}", is_clean=False)

    def _gone(self, worker: RayWorker, how: str, *, is_clean: bool) -> None:
        """A worker has ended: it is replaced on its node."""
        self._drop(worker)
        if self._dispatcher.lost(worker, how, is_clean=is_clean, are_others=bool(self._workers)):
            self._start(worker.host, worker.place, worker.index, takes_over=True)

    def _drop(self, worker: RayWorker) -> None:
        worker.is_gone = True
        worker.kill()
        del self._workers[worker.index]
