"""What the graph cache gives: memory of the workers together and time to the first part, without, while made, and with it.

    python tools/bench/graph_cache.py --data_dir PHOTOS --model_path MODELS --model_name resnext101_32x4d --num_devices 8

Each round launches the three in turn, in an order that turns around; before the second one the cache is removed. One worker
makes no cache: there the second launch is left out, and several workers make one beforehand. Time counts from right before the
exec of infer_launch. MODELS must be writable.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bulkinfer.bench.report import Quartiles
from comparison import spread
from conditions import conditions, heading
from ours import infer_launch
from picture_folder import fill, usable_jpegs
from worker_memory import WorkerMemory

_VARIABLE = "BULKINFER_GRAPH_CACHE"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", default="resnext101_32x4d", help="network")
    parser.add_argument("--model_path", type=Path, default=Path("models"), help="folder of model folders")
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graph")
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--num_devices", type=int, default=8, help="workers")
    parser.add_argument("--batches", type=int, default=2, help="of each worker")
    parser.add_argument("--precision", default="fp32", help="as infer_launch takes it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/graph-cache-<time>.json")
    return parser.parse_args()


def launch(given: argparse.Namespace, kind: str, pictures: Path, folder: Path, workers: int) -> dict[str, float]:
    """One launch; the cache of a kind `made` is removed before."""
    network = given.model_path / given.model_name
    cache = (network if given.precision == "fp32" else network / given.precision) / "graph_cache"
    if kind == "made" and cache.exists():
        shutil.rmtree(cache)
    os.environ[_VARIABLE] = "off" if kind == "without" else "on"
    words: list[object] = ["--model_name", given.model_name, "--model_path", given.model_path, "--data_dir", pictures]
    words += ["--batch_size", given.batch_size, "--num_devices", workers, "--batches_per_step", 1, "--device", "cpu"]
    with WorkerMemory(workers) as memory:
        launched = infer_launch([*words, "--precision", given.precision], folder)
    proofs = launched.summary["ran"].values()
    assert all(("cached_graph" in proof) == (kind != "without") for proof in proofs), (kind, proofs)
    first = [min(event["time"] for worker in range(workers) for event in launched.events(worker, kind)[:1])
             for kind in ("Ready", "StepDone")]  # fmt: skip
    return {
        "proportional_mib": memory.proportional_mib,
        "resident_mib": memory.resident_mib,
        "ready_s": first[0] - launched.started_s,
        "first_part_s": first[1] - launched.started_s,
        "load_s": max(event["load_s"] for worker in range(workers) for event in launched.events(worker, "Ready")),
        "images_per_s": launched.summary["images_per_s"],
    }


def measure(given: argparse.Namespace, scratch: Path) -> dict[str, list[dict[str, float]]]:
    """All rounds, by kind of launch."""
    count = given.batches * given.num_devices * given.batch_size
    pictures = fill(scratch / "pictures", usable_jpegs(given.data_dir)[0], count)
    kinds = ["without", "made", "found"] if given.num_devices > 1 else ["without", "found"]
    launch(given, "made", pictures, scratch / "first", max(2, given.num_devices))
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for number in range(given.rounds):
        for kind in kinds[:: -1 if number % 2 else 1]:
            run = launch(given, kind, pictures, scratch / f"{number}-{kind}", given.num_devices)
            runs[kind].append(run)
            print(f"  {number + 1}: {kind}", ", ".join(f"{name} {value:.2f}" for name, value in run.items()), flush=True)
    return runs


def main() -> None:
    """Measure, tell, write."""
    given = arguments()
    output = given.output or Path("logs") / f"graph-cache-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="graph-cache-"))
    try:
        runs = measure(given, scratch)
    finally:
        shutil.rmtree(scratch)
    figures: dict[str, Any] = {}
    names = list(next(iter(runs.values()))[0])
    print(f"| {given.model_name}, {given.precision}, {given.num_devices} workers | runs | {' | '.join(names)} |")
    print(f"|---|---|{'---|' * len(names)}")
    for kind, several in runs.items():
        quartiles = {name: asdict(Quartiles.of([run[name] for run in several])) for name in names}
        figures[kind] = {**quartiles, "runs": several}
        print(f"| {kind} | {len(several)} | {' | '.join(spread(quartiles[name], 2) for name in names)} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "network": given.model_name, "kinds": figures}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
