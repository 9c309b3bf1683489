"""A connection to a Ray cluster, and its nodes. The only module that loads ray; what it asks of it is in one place here."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import queue
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import remove_abandoned, write_owner_file
from bulkinfer.host.install_hint import install_command
from bulkinfer.launch.engines.ray_address import LOCAL, found_token, given_address, refuses
from bulkinfer.launch.engines.ray_node import Facts, NodeWorker, Question, inspect_node

_CLOSE_S = 10.0  # without an answer of the head Ray waits for a minute, and then ends this process
_FOLDER = "ray-"  # in the folder of temporary files: what Ray writes of such a cluster
_LOCAL_STORE_BYTES = 100_000_000  # of the object store of such a cluster: nothing large is ever put there


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive: its id, how messages name it, and the processors and GPUs that Ray may give away there."""

    id: str
    name: str
    num_cpus: int
    num_gpus: int


def require_ray() -> None:
    """Raises UsageError that says how to install it if the package ray is not there."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"--engine ray needs the package ray, which is not installed: {install_command('ray')}")


class Cluster:
    """The cluster that this process is connected to. Its thread ends actors and at last the connection.

    Both wait for an answer of the head of the cluster, which may be gone.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._inspect = ray.remote(inspect_node)
        self._worker = ray.remote(NodeWorker)
        self._to_kill: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._kill_all, name="ray ends", daemon=True)
        self._thread.start()
        self.name = ray.get_runtime_context().gcs_address

    def nodes(self) -> dict[str, Node]:
        """The nodes that are alive, by their id."""
        found = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                has, key = node["Resources"], node["NodeID"]
                name = f"node {node['NodeManagerAddress']} ({key[:8]})"
                found[key] = Node(key, name, int(has.get("CPU", 0)), int(has.get("GPU", 0)))
        return found

    def inspect(self, node: Node, asked: Question, then: Callable[[Facts | BaseException], None]) -> None:
        """Have a node look at what it has; a thread of Ray calls `then` with what it found, or the error."""
        _when_done(self._inspect.options(num_cpus=0, max_retries=0, **self._on(node)).remote(asked), then)

    def start(self, node: Node, num_cpus: float, num_gpus: float, *words: Any) -> Any:
        """Start an actor NodeWorker(*words) on a node; it waits there until what it needs is free."""
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrency": 2, "enable_task_events": False}
        return self._worker.options(**options, **self._on(node)).remote(*words)

    def kill(self, actor: Any) -> None:
        """End an actor at once, and with it its worker process."""
        self._to_kill.put(actor)

    def close(self) -> None:
        """End the connection, and with it all actors. A head that does not answer is not waited for."""
        self._to_kill.put(None)
        self._thread.join(_CLOSE_S)

    def _kill_all(self) -> None:
        while (actor := self._to_kill.get()) is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):  # its node is gone, for example
                self._ray.kill(actor)
        self._ray.shutdown()

    def is_unreachable(self, error: BaseException) -> bool:
        """True if `error` says that a node cannot be reached: what runs there may still run."""
        kinds = ("ActorUnavailableError", "ActorUnschedulableError", "TaskUnschedulableError", "NodeDiedError")
        return isinstance(error, tuple(getattr(self._ray.exceptions, kind) for kind in kinds))

    def _on(self, node: Node) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False)}


def next_reports(actor: Any, wait_s: float, then: Callable[[Any], None]) -> None:
    """Wait for what a NodeWorker reports; a thread of Ray calls `then` with the Reports, or the error."""
    _when_done(actor.reports.remote(wait_s), then)


def _when_done(ref: Any, then: Callable[[Any], None]) -> None:
    def hand_on(done: Any) -> None:
        if not done.cancelled():  # by the end of the connection
            then(done.exception() or done.result())

    ref.future().add_done_callback(hand_on)


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """A connection to the cluster at `address` within the block; see --ray_address.

    Raises UsageError if there is no cluster, or it runs another version of Ray or Python.
    """
    _set_environment(address)
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    options: contextlib.AbstractContextManager[dict[str, Any]]
    options = _own_cluster() if address == LOCAL else contextlib.nullcontext({})
    with options as own:
        with _keeping_handlers():
            try:
                ray.init(address or "auto", log_to_driver=False, configure_logging=False, **own)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise UsageError(_why_not(address, error)) from None
        cluster = Cluster(ray)
        try:
            yield cluster
        finally:
            cluster.close()


@contextlib.contextmanager
def _own_cluster() -> Iterator[dict[str, Any]]:
    """What ray.init takes for a cluster of this host; nothing of it is left after the block.

    What launchers that were killed have left is removed first. Ray opens its folder to all users: it lies in one of this user.
    """
    with contextlib.suppress(OSError):  # a process of Ray that is just ending may still write there: a later launch removes it
        remove_abandoned(Path(tempfile.gettempdir()), f"{_FOLDER}*")
    with tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as folder:
        write_owner_file(Path(folder))
        own = Path(folder) / "r"  # short: it is part of the names of sockets, which have 107 bytes at most
        own.mkdir()
        yield {"include_dashboard": False, "object_store_memory": _LOCAL_STORE_BYTES, "_temp_dir": str(own)}


def _set_environment(address: str) -> None:
    """What Ray reads when it is loaded: it sends nothing anywhere, and the launch itself says what Ray would print."""
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_DEDUP_LOGS_SKIP_REGEX", "."),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),  # else Ray warns that it will change its default
    ):
        os.environ.setdefault(name, value)
    if address == LOCAL:
        os.environ.setdefault("RAY_worker_niceness", "0")  # workers run as without Ray
        if not found_token():  # else Ray makes one for all clusters to come, in the home folder
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    elif given := given_address(address):  # Ray itself sends no token to an address that is given, unless this says so
        os.environ.setdefault("RAY_AUTH_MODE", "token" if refuses(given) else "disabled")


def _why_not(address: str, error: Exception) -> str:
    """The sentence for an error of ray.init."""
    said = " ".join(str(error).split())
    if "Version mismatch" in said or "version mismatch" in said.lower():
        return f"the Ray cluster and this host have different versions: {said[:300]}: install the same ones on both"
    if not address and isinstance(error, ConnectionError):
        return "this host is no node of a Ray cluster: run ray start on it, or give --ray_address HOST:PORT or local"
    return f"--ray_address {address or 'auto'}: no connection ({said[:300]}): run the launch on a node of that Ray cluster"


@contextlib.contextmanager
def _keeping_handlers() -> Iterator[None]:
    """Within the block another library may set the handler of SIGTERM: afterwards it is the one that was there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
