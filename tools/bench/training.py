"""Training beside the way of timm's train.py: the same pictures, network, batch, float32 and cores, in turn.

    python tools/bench/training.py cifar
    python tools/bench/training.py folder --data_dir PHOTOS

`cifar`: cifar_resnet20 at 32 x 32 on a made-up set in CIFAR-10's python form, mirrored and shifted. `folder`: resnet50 at
224 x 224 on class folders of JPEGs, of which parts are cut out at random. Pictures per second are those between the end of the
first updates and that of the last one of a run. Prints each run, and medians with quartiles.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.bench.report import Quartiles
from bulkinfer.host.cores import core_budget
from comparison import OURS, RefusedError, Run, of, ratios, spread
from conditions import conditions, heading
from ours import LIMIT_S, SCRIPTS
from peers_environment import ROOT
from picture_folder import fill, usable_jpegs

PEER = Path(__file__).with_name("peer_scripts") / "timm_train.py"
NUM_CLASSES = 10
CONTESTANTS = {  # of timm: what is added to its job, and to its environment
    "timm": ({"num_workers": core_budget().usable, "channels_last": True}, {}),
    "timm_no_spin": ({"num_workers": core_budget().usable, "channels_last": True}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    "timm_defaults": ({"num_workers": 4, "channels_last": False}, {}),
}


@dataclass(frozen=True)
class Task:
    """What all contestants do."""

    kind: str
    model: str
    image_size: int
    batch_size: int
    updates: int  # in a run, of which the first `warm_up` are not counted
    warm_up: int
    data_dir: str = ""


TASKS = {
    "cifar": Task("cifar", "cifar_resnet20", 32, batch_size=128, updates=70, warm_up=10),
    "folder": Task("folder", "resnet50", 224, batch_size=16, updates=12, warm_up=2),
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=TASKS)
    parser.add_argument("--data_dir", type=Path, help="folder of JPEGs, for folder")
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS, help="beside ours")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/training-<time>.json")
    return parser.parse_args()


def make_cifar(folder: Path, pictures: int) -> Path:
    """Made-up pictures in CIFAR-10's python form."""
    random, folder = np.random.default_rng(0), folder / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        count = pictures // 5
        data = random.integers(0, 256, (count, 3072), np.uint8)
        labels = random.integers(0, NUM_CLASSES, count).tolist()
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": labels}))
    return folder


def make_folders(folder: Path, jpegs: list[Path], pictures: int) -> Path:
    """Class folders of links to JPEGs."""
    for label in range(NUM_CLASSES):
        start = label * len(jpegs) // NUM_CLASSES
        count = pictures // NUM_CLASSES + (label < pictures % NUM_CLASSES)
        fill(folder / "train" / f"class-{label}", jpegs[start:] + jpegs[:start], count)
    return folder


def run_ours(task: Task, number: int, scratch: Path) -> Run:
    """One run of bulkinfer train; its clock is that of training.csv."""
    logs = scratch / f"logs-{number}"
    words = ["train", "--model", task.model, "--data_dir", task.data_dir, "--validation", "none", "--checkpoints_per_epoch", 0,
             "--micro_batch_size", task.batch_size, "--steps", task.updates, "--logs_per_epoch", task.updates // task.warm_up,
             "--log_path", logs, "--dataset", "cifar10" if task.kind == "cifar" else "folder"]  # fmt: skip
    done = subprocess.run([SCRIPTS / "bulkinfer", *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RefusedError(f"bulkinfer train ended with {done.returncode}: {done.stderr}")
    table = logs / "latest" / "training.csv"
    rows = list(csv.DictReader(table.open()))
    assert int(rows[0]["step"]) == task.warm_up, f"the first log is that of update {rows[0]['step']}"
    seconds = float(rows[-1]["total_s"]) - float(rows[0]["total_s"])
    return Run(OURS, number, (task.updates - task.warm_up) * task.batch_size, seconds, 0.0)


def run_timm(task: Task, name: str, number: int, scratch: Path) -> Run:
    """One run of the script in timm's way."""
    added, environment = CONTESTANTS[name]
    job, result = scratch / "job.json", scratch / "result.json"
    log_every = task.warm_up
    job.write_text(
        json.dumps({**asdict(task), **added, "num_classes": NUM_CLASSES, "log_every": log_every, "result": str(result)})
    )
    done = subprocess.run(
        [sys.executable, PEER, job], env={**os.environ, "PYTHONPATH": str(ROOT / "inference"), **environment},
        capture_output=True, text=True,
        timeout=LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise RefusedError(f"{PEER.name} ended with {done.returncode}: {done.stderr}")
    found: dict[str, Any] = json.loads(result.read_text())
    return Run(name, number, found["pictures"], found["seconds"], found["cpu_s"], facts=found["facts"])


def table(runs: list[Run], names: list[str]) -> list[str]:
    """The rows of a Markdown table."""
    rows = ["| | runs | images/s (quartiles) | ours / peer (quartiles) |", "|---|---|---|---|"]
    for name in names:
        own = of(runs, name)
        rate = spread(asdict(Quartiles.of([run.images_per_s for run in own])), 1)
        ratio = "" if name == OURS else spread(asdict(Quartiles.of(ratios(runs, OURS, name))), 2)
        rows.append(f"| {name} | {len(own)} | {rate} | {ratio} |")
    return rows


def main() -> None:
    """Measure, tell, write."""
    given = arguments()
    output = given.output or Path("logs") / f"training-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    task, runs, names = TASKS[given.kind], [], [OURS, *given.contestants]
    if task.kind == "folder" and not given.data_dir:
        raise SystemExit("folder needs --data_dir: JPEGs to train on")
    jpegs, left_out = usable_jpegs(given.data_dir) if given.data_dir else ([], 0)
    found = conditions(is_quick=False, different_pictures=len(jpegs), left_out=left_out)
    print("\n".join(heading(found)), flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="training-"))
    try:
        count = task.updates * task.batch_size  # one epoch
        place = make_cifar(scratch, count) if task.kind == "cifar" else make_folders(scratch / "photos", jpegs, count)
        task = replace(task, data_dir=str(place))
        for number in range(given.rounds + 1):  # the first one only warms up
            for name in names:
                run = run_ours(task, number, scratch) if name == OURS else run_timm(task, name, number, scratch)
                if number:
                    runs.append(run)
                    print(f"  {number}: {name:<16}{run.images_per_s:8.1f} images/s", flush=True)
    finally:
        shutil.rmtree(scratch)
    rows = table(runs, names)
    print("\n".join(rows))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "task": asdict(task), "table": rows, "runs": [r.as_json() for r in runs]}, indent=1))
    print(f"written: {output}")


if __name__ == "__main__":
    main()
