"""Ray clusters for tests: nodes on this host, in a process of their own.

Started as `python -m tests.ray_nodes CPUS...` it starts a node for each number, prints the address, and obeys lines on stdin:
`kill N`, `add CPUS [NAME=VALUE...]` and `settle`. It stops all nodes when stdin closes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_STORE_BYTES = 80_000_000  # the least that Ray takes
_PATIENCE_S = 120  # until a node has joined, or is gone

# On PYTHONPATH of nodes: a worker's every picture takes 0.05 s, and one whose file ends with KILLS ends the process. A worker
# process opens 20 pictures, which are two steps and the start of a third, and no more while the file `held` is there. A node
# with OTHER_FILES=THIS:THAT finds the files of folder THAT in folder THIS, one with OTHER_PILLOW=1 another version of Pillow.
_SITE = """
import os, sys
if "OTHER_FILES" in os.environ:
    opened, (this, _, that) = os.open, os.environ["OTHER_FILES"].partition(":")
    def elsewhere(path, *words, **options):
        if not str(path).startswith(this):
            return opened(path, *words, **options)
        try:
            return opened(str(path).replace(this, that), *words, **options)
        except FileNotFoundError as error:
            error.filename = path
            raise
    os.open = elsewhere
if "OTHER_PILLOW" in os.environ:
    import importlib.metadata
    found = importlib.metadata.version
    importlib.metadata.version = lambda name: "1.0" if name == "Pillow" else found(name)
if "bulkinfer.worker.process" in sys.orig_argv:
    import itertools, signal, time, PIL.Image
    plain, count = PIL.Image.open, itertools.count(1)
    def disturbed(fp, *args, **options):
        time.sleep(0.05)
        number = next(count) if fp.getvalue()[1:4] == b"PNG" else 0  # not the JPEG that a worker tries its decoder with
        while number > 20 and os.path.exists(os.path.join(os.path.dirname(__file__), "held")):
            time.sleep(0.05)
        if fp.getvalue().endswith(b"KILLS"):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(fp, *args, **options)
    PIL.Image.open = disturbed
"""


class RayNodes:
    """A cluster that runs: its address, and what can be done to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._answer()

    def kill(self, number: int) -> None:
        """End all processes of a node at once; 0 is the head."""
        self._say(f"kill {number}")

    def add(self, cpus: int, **environment: str) -> None:
        """Have a further node join, with these variables of environment; see _SITE."""
        self._say(" ".join([f"add {cpus}", *(f"{name}={value}" for name, value in environment.items())]))

    def settle(self) -> None:
        """Wait until the cluster knows which nodes it has: one that was killed is taken for alive for some seconds."""
        self._say("settle")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster has ended"
        return line


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Inside, no worker process on nodes that were made with `folder` gets further than its third step of eight pictures."""
    path = folder / "site" / "held"
    path.touch()
    try:
        yield
    finally:
        path.unlink()


@contextlib.contextmanager
def ray_nodes(folder: Path, *cpus: int) -> Iterator[RayNodes]:
    """A cluster with a node for each number of processors; pictures take their time there. `folder` gets what it needs."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_SITE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    with (folder / "ray.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_nodes", *map(str, cpus)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment,
        )  # fmt: skip
    try:
        yield RayNodes(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(120)
        process.stdout.close()


def main() -> None:
    """Serve one test."""
    from ray.cluster_utils import Cluster

    Cluster._wait_for_node.__defaults__ = (_PATIENCE_S,)  # 30 s may be too few on a busy machine
    head, *others = map(int, sys.argv[1:])
    small = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # Ray's sockets need a short path
        os.environ["RAY_TMPDIR"] = folder
        Path(folder, "ray").mkdir()  # there Ray notes the address of the cluster: it does not make that folder
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": head, "temp_dir": folder, **small})
        try:
            nodes = [cluster.head_node, *(cluster.add_node(num_cpus=cpus, **small) for cpus in others)]
            print(cluster.address, flush=True)
            for line in sys.stdin:
                word, *words = line.split()
                if word == "kill":
                    cluster.remove_node(nodes[int(words[0])], allow_graceful=False)
                elif word == "settle":
                    cluster.wait_for_nodes(_PATIENCE_S)
                else:
                    variables = dict(each.split("=", 1) for each in words[1:])
                    nodes.append(cluster.add_node(num_cpus=int(words[0]), env_vars=variables, **small))
                print("done", flush=True)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
