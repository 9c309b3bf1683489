"""Stands in for a Ray cluster: its actors are objects of this process, each with a thread that waits for reports."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from bulkinfer.host.cores import CoreBudget
from bulkinfer.host.versions import versions
from bulkinfer.launch.engines.ray_cluster import Node
from bulkinfer.launch.engines.ray_node import Facts, NodeWorker, Question


class UnreachableError(Exception):
    """The node of an actor does not answer."""


class FakeActor:
    """A NodeWorker as the launcher sees it."""

    def __init__(self, node: Node, words: tuple[Any, ...]) -> None:
        self.node, self.error = node, Exception("")
        self._worker = NodeWorker(*words)
        self.send = SimpleNamespace(remote=self._worker.send)
        self.pid = self._worker._handle.process.pid
        self._waiting: threading.Thread | None = None
        self._is_closed = False

    def fail(self, error: Exception) -> None:
        """End the actor, so that the launcher gets `error` in place of reports."""
        self.error = error
        self._worker._handle.kill()

    def wait(self, wait_s: float, then: Callable[[Any], None]) -> None:
        """What next_reports does."""

        def ask() -> None:
            found = self._worker.reports(wait_s)
            self._is_closed = found.ending is not None
            then(self.error if str(self.error) else found)

        self._waiting = threading.Thread(target=ask)
        self._waiting.start()

    def close(self) -> None:
        """End the worker process, as the end of an actor's process does."""
        self._worker._handle.kill()
        if self._waiting is not None:
            self._waiting.join()
        if not self._is_closed:
            self._worker._handle.close()


class FakeCluster:
    """A cluster of the nodes in `alive`, by their id; `facts` are what is found there in turn, if not what one expects."""

    name = "127.0.0.1:6379"

    def __init__(self, *cpus: int) -> None:
        self.alive: dict[str, Node] = {}
        self.facts: dict[str, list[Facts | BaseException]] = {}
        self.actors: list[FakeActor] = []
        for number in cpus:
            self.join(number)

    def join(self, cpus: int, gpus: int = 0) -> Node:
        """A further node."""
        name = f"n{len(self.alive)}"
        self.alive[name] = Node(name, f"node {name}", cpus, gpus)
        return self.alive[name]

    def lose(self, name: str, *, is_known: bool) -> None:
        """A node does not answer any more; `is_known`: and the cluster knows that it is gone."""
        if is_known:
            del self.alive[name]
        for actor in self.actors:
            if actor.node.id == name:
                actor.fail(UnreachableError("socket closed"))

    def nodes(self) -> dict[str, Node]:
        return dict(self.alive)

    def inspect(self, node: Node, asked: Question, then: Callable[[Facts | BaseException], None]) -> None:
        facts = self.facts.get(node.id)
        then(facts.pop(0) if facts else Facts(CoreBudget(tuple(range(8)), None), versions(), ""))

    def start(self, node: Node, num_cpus: float, num_gpus: float, *words: Any) -> FakeActor:
        self.actors.append(FakeActor(node, words))
        return self.actors[-1]

    def kill(self, actor: FakeActor) -> None:
        if not str(actor.error):
            actor.fail(Exception("killed"))

    def is_unreachable(self, error: BaseException) -> bool:
        return isinstance(error, UnreachableError)


@contextlib.contextmanager
def connected_to(cluster: FakeCluster) -> Iterator[FakeCluster]:
    """In place of ray_cluster.connected."""
    try:
        yield cluster
    finally:
        for actor in cluster.actors:
            actor.close()
