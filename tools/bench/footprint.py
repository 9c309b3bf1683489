"""Time and memory that the product promises to stay under, measured on this machine with the installed commands.

    python tools/bench/footprint.py [--scratch DIR]

Partitioning 40,504 small files over 8 and again; a worker's memory from its 50th to its 500th batch; eight workers of
ResNeXt101 together (random weights); the time of `infer_launch --help`. Prints one line each: figure, bound, verdict.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from worker_memory import WorkerMemory

SCRIPTS = Path(sys.executable).parent
COCO_VAL2014 = 40_504  # pictures in the set that the reference system is measured on
MIB = 1 << 20


def run(name: str, *words: object, cwd: Path) -> tuple[float, int]:
    """Run an installed command; its wall-clock seconds and the peak memory of its largest process, in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen([SCRIPTS / name, *map(str, words)], cwd=cwd, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode not in (0, 3):
        raise SystemExit(f"{name} ended with exit code {process.returncode}")
    return seconds, usage.ru_maxrss * 1024


def jpeg(width: int, height: int, seed: int) -> bytes:
    """A picture that compresses like a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
        return file.getvalue()


over: list[str] = []  # what did not stay under its bound


def tell(what: str, figure: float, unit: str, bound: float) -> None:
    """One line of the report."""
    if figure > bound:
        over.append(what.strip())
    print(f"{what:<64}{figure:>10.2f} {unit:<4} bound {bound:g}  {'ok' if figure <= bound else 'OVER'}", flush=True)


def measure_partitioning(scratch: Path) -> None:
    """40,504 small files over 8, then the same again."""
    photos = scratch / "photos"
    data = [jpeg(24, 16, seed) for seed in range(8)]
    for number in range(COCO_VAL2014):
        path = photos / f"{number // 1000:02d}" / f"COCO_val2014_{number:012d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[number % 8])
    words = ("--data_dir", photos, "--partitions", 8, "--output", scratch / "datasets")
    seconds, peak = run("partition_dataset", *words, cwd=scratch)
    tell("partition_dataset, 40,504 files over 8", seconds, "s", 15)
    tell("  its peak memory", peak / MIB, "MiB", 300)
    repeats = [run("partition_dataset", *words, cwd=scratch)[0] for _ in range(3)]
    tell("  repeat, median of 3", statistics.median(repeats), "s", 3)


def measure_flatness(scratch: Path, network: str) -> None:
    """Peak memory of a worker at its 500th batch over that at its 50th, on pictures of many sizes."""
    photos = scratch / "sizes"
    photos.mkdir()
    sizes = np.random.default_rng(0).integers(150, 2000, (60, 2))
    data = [jpeg(int(width), int(height), seed) for seed, (width, height) in enumerate(sizes)]
    for number in range(510 * 6):
        (photos / f"{number:05d}.jpg").write_bytes(data[number % 60])
    run("infer_launch", "--model_name", network, "--data_dir", photos, "--batches_per_step", 1, "--num_devices", 1, cwd=scratch)
    events = [json.loads(line) for line in (scratch / "logs/latest/worker-0.jsonl").read_text().splitlines()]
    peaks = [event["totals"]["peak_memory_bytes"] for event in events if event["kind"] == "StepDone"]
    tell(f"{network}: growth of a worker's memory, batch 50 to 500", (peaks[499] - peaks[49]) / MIB, "MiB", 50)


def measure_eight_workers(scratch: Path) -> None:
    """The sum of the peaks of eight ResNeXt101 workers on each CPU provider, and again with each page counted once."""
    for device in ("cpu", "openvino"):
        with WorkerMemory(8) as memory:
            run("infer_launch", "--num_ipus", 8, "--synthetic", "--batches_per_step", 1, "--device", device, cwd=scratch)
        summary: dict[str, Any] = json.loads((scratch / "logs/latest/summary.json").read_text())
        together = sum(summary["peak_memory_bytes"].values())
        tell(f"eight resnext101_32x4d workers on {device}, together", together / (1 << 30), "GiB", 12)
        tell("  each page counted once", memory.proportional_mib / 1024, "GiB", 12)


def main() -> None:
    """Measure all of it in a scratch folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", help="folder for a few hundred MB that is removed at the end; default: the system's")
    folder = parser.parse_args().scratch
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        print(f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, Python {platform.python_version()}")
        helps = [run("infer_launch", "--help", cwd=scratch)[0] for _ in range(9)]
        tell("infer_launch --help, median of 9", statistics.median(helps), "s", 0.3)
        measure_partitioning(scratch)
        run("get_model", "--model_name", "efficientnet_lite0", cwd=scratch)
        measure_flatness(scratch, "efficientnet_lite0")
        run("get_model", "--weights", "random", cwd=scratch)
        measure_eight_workers(scratch)
    if over:
        raise SystemExit(f"over their bounds: {'; '.join(over)}")


if __name__ == "__main__":
    main()
