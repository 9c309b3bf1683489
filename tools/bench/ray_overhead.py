"""What --engine ray costs beside --engine local on one node: the same launch with both, in turn.

    python tools/bench/ray_overhead.py --seconds 320 --pairs 2 --data_dir PHOTOS \\
        -- --model_name efficientnet_lite0 --device cpu --precision fp32

Words behind `--` go to both. Each launch on Ray gets a node of its own, which is stopped after it, so that launches without Ray
have nothing of Ray beside them. Pictures per second are those between the first and the last published step. CPU time is that
of the launch with its workers and Ray's own processes, from start to end; beside it stands that of everything else on the host.
Start-up is separate: of the node, then from the exec of infer_launch to the first worker's readiness and to the first published
step. A first launch without Ray, which is not counted, finds how many pictures a launch gets.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bulkinfer.bench.report import Quartiles
from bulkinfer.host.cores import core_budget
from comparison import enough_pictures, spread, together
from conditions import conditions, heading
from ours import SCRIPTS, Launched, infer_launch
from peer_scripts.laps import TICKS_PER_S
from picture_folder import fill, usable_jpegs

ENGINES = ("local", "ray")
_FIRST = 400  # batches of the first launch
_STORE_BYTES = 100_000_000  # of Ray's object store, which the launch hardly uses


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--seconds", type=float, default=320.0, help="that a launch without Ray takes about")
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graphs")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/ray_overhead-<time>.json")
    parser.add_argument("words", nargs="*", help="options of both, behind --")
    return parser.parse_args()


@contextlib.contextmanager
def ray_node() -> Iterator[tuple[str, int, float]]:
    """A cluster of one node with all cores of this process, within the block: address, process, and seconds of its start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scratch = tempfile.mkdtemp(prefix="ray-")
    words = ["--head", "--block", "--port", port, "--num-cpus", core_budget().usable, "--temp-dir", scratch]
    words += ["--object-store-memory", _STORE_BYTES, "--include-dashboard", "false", "--disable-usage-stats"]
    started_s = time.monotonic()
    process = subprocess.Popen(
        [SCRIPTS / "ray", "start", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ray runtime started" in line:
                break
        else:
            raise SystemExit("ray start has ended")
        yield f"127.0.0.1:{port}", process.pid, time.monotonic() - started_s
    finally:
        process.terminate()
        process.communicate()
        shutil.rmtree(scratch, ignore_errors=True)


def busy_s() -> float:
    """CPU seconds of all processes of this host since its start."""
    user, nice, system = Path("/proc/stat").read_text().split(maxsplit=4)[1:4]
    return (int(user) + int(nice) + int(system)) / TICKS_PER_S


@contextlib.contextmanager
def cpu_of_tree(root: int) -> Iterator[Callable[[], float]]:
    """The CPU seconds that a process and its descendants use within the block, 0 for no process.

    Ray's node does not wait for processes that end, so what they used is noted every half second while they live.
    """
    end, first, last = threading.Event(), cpu_below(root), dict[int, float]()

    def note() -> None:
        while not end.wait(0.5):
            last.update(cpu_below(root))

    thread = threading.Thread(target=note)
    thread.start()
    try:
        yield lambda: sum(seconds - first.get(pid, 0.0) for pid, seconds in last.items())
    finally:
        end.set()
        thread.join()


def cpu_below(root: int) -> dict[int, float]:
    """CPU seconds so far of a process and of each of its descendants, without those that they have waited for."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat") if root else ():
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = path.read_bytes().rpartition(b")")[2].split()
            pid = int(path.parent.name)
            parents[pid], seconds[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def is_below(pid: int) -> bool:
        while pid != root and pid in parents:
            pid = parents[pid]
        return pid == root

    return {pid: used for pid, used in seconds.items() if is_below(pid)}


def launch(given: argparse.Namespace, pictures: Path, folder: Path, *words: object, node: int = 0) -> dict[str, float]:
    """The figures of one launch; `node` is the process of the Ray node that runs for it."""
    before_s, count = busy_s(), len(os.listdir(pictures))
    common = [*given.words, "--batch_size", given.batch_size, "--data_dir", pictures]
    with cpu_of_tree(node) as used:
        launched = infer_launch([*common, *words], folder, mark="")
    cpu_s = launched.cpu_s + used()
    others_s = busy_s() - before_s - cpu_s
    found = figures(launched)
    return {**found, "cpu_ms": 1000 * cpu_s / count, "others": others_s / found["whole_s"]}


def figures(launched: Launched) -> dict[str, float]:
    """What the logs of a launch say."""
    workers = range(len(list(launched.folder.glob("worker-*.jsonl"))))
    first = {kind: min(launched.events(index, kind)[0]["time"] for index in workers) for kind in ("Ready", "StepDone")}
    return {
        "images_per_s": together(launched.steps(index) for index in workers),
        "steps": sum(len(launched.steps(index)) for index in workers),
        "whole_s": time.time() - launched.started_s,
        "ready_s": first["Ready"] - launched.started_s,
        "first_step_s": first["StepDone"] - launched.started_s,
    }


def run(given: argparse.Namespace, engine: str, pictures: Path, folder: Path) -> dict[str, float]:
    """The figures of one launch with an engine."""
    if engine == "local":
        return launch(given, pictures, folder)
    with ray_node() as (address, node, start_s):
        found = launch(given, pictures, folder, "--engine", "ray", "--ray_address", address, node=node)
    return {"node_s": start_s, **found}


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    output = given.output or Path("logs") / f"ray_overhead-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    jpegs, left_out = usable_jpegs(given.data_dir)
    found = conditions(is_quick=False, different_pictures=len(jpegs), left_out=left_out, words=given.words)
    print("\n".join(heading(found)), flush=True)
    pairs: list[dict[str, dict[str, float]]] = []
    scratch = Path(tempfile.mkdtemp(prefix="overhead-"))
    try:
        first = launch(given, fill(scratch / "first", jpegs, _FIRST * given.batch_size), scratch / "logs-first")
        count = enough_pictures(first["images_per_s"], given.seconds, given.batch_size)
        print(f"  {first['images_per_s']:.1f} images/s: {count} pictures in a launch", flush=True)
        pictures = fill(scratch / "pictures", jpegs, count)
        for number in range(given.pairs):
            pair = {}
            for engine in ENGINES if number % 2 else ENGINES[::-1]:
                pair[engine] = run(given, engine, pictures, scratch / f"{number}-{engine}")
                print(f"  {number}: {engine}", *(f"{name} {value:.2f}" for name, value in pair[engine].items()), flush=True)
            pairs.append(pair)
    except KeyboardInterrupt:
        print(f"interrupted after {len(pairs)} pairs")
    finally:
        shutil.rmtree(scratch)
    write(output, found, pairs)


def write(output: Path, found: dict[str, Any], pairs: list[dict[str, dict[str, float]]]) -> None:
    """Print the table of what was measured, and write it to a file."""
    quartiles = {
        engine: {name: asdict(Quartiles.of([pair[engine][name] for pair in pairs])) for name in pairs[0][engine]}
        for engine in ENGINES
    }
    names = list(quartiles["ray"])
    print(f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", sep="\n")
    for engine, values in quartiles.items():
        print(f"| {engine} | {' | '.join(spread(values[name], 2) if name in values else '' for name in names)} |")
    ratio = asdict(Quartiles.of([pair["ray"]["images_per_s"] / pair["local"]["images_per_s"] for pair in pairs]))
    print(f"ray / local, images/s: {spread(ratio, 3)} over {len(pairs)} pairs")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "quartiles": quartiles, "ratio": ratio, "pairs": pairs}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
