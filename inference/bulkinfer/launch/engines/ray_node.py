"""What runs on a node of a Ray cluster: the check of what the node sees, and the actor beside each worker process.

The launcher imports this module too, for the names. It does not import ray: an actor is a plain object in a process of Ray.
"""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass, field
from pathlib import Path

from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.guarded import open_regular
from bulkinfer.host.cores import CoreBudget, ThreadPlan, core_budget
from bulkinfer.host.versions import versions
from bulkinfer.launch.engines.worker_handle import start_worker
from bulkinfer.model.card import check_graph_files
from bulkinfer.model.stored_network import fetch_folder
from bulkinfer.results.output_locks import is_lock_held
from bulkinfer.types import Step
from bulkinfer.worker.protocol import End, RunStep, StepDone, decode


@dataclass(frozen=True, slots=True)
class Question:
    """What a node must have: the run file, by its hash, the locks of the launcher in it, and the graph with its weights.

    A network that has an address in a store is fetched to the path that it has on the launcher's host.
    """

    run_file: str
    run_file_sha256: str
    locks: dict[str, str]
    graph: str
    batch_size: int
    graph_sha256: str
    network_address: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on a node: its cores, the versions of its packages, and what it lacks as a sentence; empty: nothing."""

    cores: CoreBudget
    versions: dict[str, str]
    problem: str


def inspect_node(asked: Question) -> Facts:
    """Look at this node. Reads the weights of the network once."""
    return Facts(core_budget(), versions(), _problem(asked))


def _problem(asked: Question) -> str:
    shared = "logs, results, pictures and network must lie in a file system that all nodes have, under the same paths"
    try:
        if file_sha256(Path(asked.run_file)) != asked.run_file_sha256:
            return f"finds another {asked.run_file} than the launcher wrote: {shared}"
        for path, token in asked.locks.items():
            if not is_lock_held(path, token):
                return f"does not find the launcher's {path}: {shared}"
        if asked.network_address and not Path(asked.graph).exists():
            fetch_folder(asked.network_address, Path(asked.graph).parent, asked.batch_size)
        open_regular(asked.graph).close()  # raises FileNotFoundError
        card, sidecar, graph = check_graph_files(Path(asked.graph).parent, asked.batch_size)
        if sidecar.sha256 != asked.graph_sha256:
            return f"has another {asked.graph} than the launcher: copy the folder of the network again"
        weights = graph.parent / card.external_data
        if file_sha256(weights, most_bytes=card.most_weights_bytes) != card.external_data_sha256:
            return f"has a damaged {weights} (its hash is not that in card.json): copy the folder of the network again"
    except FileNotFoundError as error:
        return f"does not have {error.filename}: {shared}"
    except OSError as error:
        return f"cannot read what it needs: {os_error_sentence(error)}"
    except BulkinferError as error:
        return f"cannot read what it needs: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker process has ended; `last_words` is the end of its log, `loading` and `running` are what it worked on."""

    how: str
    is_clean: bool
    last_words: str
    loading: list[Step]
    running: list[Step]


@dataclass(frozen=True, slots=True)
class Reports:
    """What a worker has reported since the last call, as lines, how many pictures have their rows, and its end."""

    lines: list[bytes] = field(default_factory=list)
    finished: int = 0
    ending: Ending | None = None


class NodeWorker:
    """The actor beside a worker process: starts it, hands on commands and reports, and sees how it ends.

    If the actor's process ends, the kernel ends the worker. Two threads call it: one waits in `reports`.
    """

    def __init__(
        self, run_file: str, index: int, plan: ThreadPlan, place: int, takes_over: bool, stall_timeout_s: float
    ) -> None:
        """`place` is the number of the worker on this node, by which `plan` has its cores."""
        self._handle = start_worker(Path(run_file), index, plan, plan.affinity[place], takes_over=takes_over)
        self._stall_timeout_s = stall_timeout_s
        self._watched_at = time.monotonic()
        self._next, self._early = 0, dict[int, bytes]()

    def send(self, number: int, line: bytes) -> None:
        """Hand on the command with this number, once all before it have come: calls may overtake each other."""
        self._early[number] = line
        while (following := self._early.pop(self._next, None)) is not None:
            self._next += 1
            command = decode(following)
            if isinstance(command, RunStep):
                self._handle.held.append(command.step)
            self._handle.ended = isinstance(command, End)
            self._handle.send(command)

    def reports(self, wait_s: float) -> Reports:
        """What the worker has reported; waits so many seconds for it. After an `ending` there is nothing more."""
        due = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, due - time.monotonic())
            if self._stall_timeout_s:
                left_s = min(left_s, self._stall_timeout_s / 16)
            lines = list[bytes]()
            if select.select([self._handle.reports], [], [], left_s)[0]:
                chunk = os.read(self._handle.reports, 1 << 16)
                lines = self._handle.lines(chunk)
                self._note(lines)
                if not chunk:
                    return Reports(lines, self._handle.in_flight.finished(), self._end())
            self._watch()
            if lines or time.monotonic() >= due:
                return Reports(lines, self._handle.in_flight.finished())

    def _note(self, lines: list[bytes]) -> None:
        """Keep count of what the worker has in hand, by which a stall is seen."""
        for event in map(decode, lines):
            if isinstance(event, StepDone):
                self._handle.held.remove(event.step)
            self._handle.ready = True  # whatever comes first is a sign of that, or its last report

    def _watch(self) -> None:
        now, most_s = time.monotonic(), self._stall_timeout_s
        watched_s, self._watched_at = min(now - self._watched_at, most_s / 8), now
        if most_s and self._handle.is_stalled(watched_s, most_s) and not self._handle.ended_for:
            self._handle.end(f"ended for making no progress in {most_s:g} s")

    def _end(self) -> Ending:
        handle = self._handle
        code = handle.close()
        return Ending(handle.how(code), code == 0, "" if code == 0 else handle.last_words(), handle.loading, handle.running)
