"""A worker on a node of a Ray cluster, as the launcher handles it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from bulkinfer.launch.engines.ray_cluster import Cluster
from bulkinfer.launch.engines.ray_hosts import Host
from bulkinfer.launch.engines.ray_node import Ending
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Command, encode


@dataclass
class RayWorker:
    """The actor of a worker, and what the worker was given; `place` is its number on its host. See dispatch.Worker."""

    index: int
    host: Host
    place: int
    cluster: Cluster
    actor: Any
    ready: bool = False
    ended: bool = False
    held: list[Step] = field(default_factory=list)
    loading: list[Step] = field(default_factory=list)
    running: list[Step] = field(default_factory=list)
    is_running: bool = False  # its actor has been heard of, and the dispatcher knows it
    is_gone: bool = False  # what its actor still reports is of no interest
    is_late: bool = False  # a warning says that it has not started
    started_at: float = field(default_factory=time.monotonic)
    _sent: int = 0
    _last_words: str = ""

    def send(self, command: Command) -> None:
        """Send one command, with its number: calls of an actor may overtake each other."""
        self.actor.send.remote(self._sent, encode(command).encode())
        self._sent += 1

    def kill(self) -> None:
        """End it at once; the error of its actor will follow."""
        self.cluster.kill(self.actor)

    def last_words(self) -> str:
        """The end of its log, or what Ray says of its actor."""
        return self._last_words

    def note_end(self, ending: Ending) -> None:
        """Keep what is known of the end of its process."""
        self.loading, self.running, self._last_words = ending.loading, ending.running, ending.last_words

    def note_error(self, error: BaseException) -> None:
        """Keep what Ray says of the end of its actor."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self._last_words = f"Ray says: {' ... '.join(dict.fromkeys([*lines[:1], *lines[-1:]]))}"
