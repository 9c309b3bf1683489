"""Time and memory as a data set grows to ten million records, measured on this machine with the installed commands.

    python tools/bench/grow.py [--only partition launch cpu] [--keys 10000000] [--rounds 7] [--scratch DIR]

partition: `partition_dataset --list_file --mode manifest` over 8 and over 1 partition, first and again, for a sorted list and
for a shuffled one with COCO names and repeated lines. launch: `infer_launch` on those partitions; the files do not exist, so
each record becomes an error row, but steps, parts and books are those of any run. cpu: processor seconds per picture of
`infer_launch --generated` on a network of next to no work, on one core, for 1,000,000 pictures against 10,000. Prints one line
each: figure, bound, verdict.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SCRIPTS = Path(sys.executable).parent
MIB, GB = 1 << 20, 10**9
REPEATED = 10_000
STRIDE = 7_368_787  # a prime: (number x STRIDE) mod keys puts every number in another place, without a list of them
SIZE = 32  # of a picture's sides, in pixels
RECIPE = {
    "height": SIZE, "width": SIZE, "resize": "exact", "resize_size": SIZE, "crop_fraction": 1.0, "interpolation": "bilinear",
    "mean": [0, 0, 0], "std": [1, 1, 1],
}  # fmt: skip
STEP_PICTURES = 1000
STEP = ("--batch_size", 20, "--batches_per_step", STEP_PICTURES // 20)
ALONE = ("--model_name", "tiny", "--device", "cpu", "--num_devices", 1, *STEP)

over: list[str] = []  # what did not stay under its bound


def tell(what: str, figure: float, unit: str, bound: float) -> None:
    """One line of the report."""
    if figure > bound:
        over.append(what.strip())
    print(f"{what:<72}{figure:>9.2f} {unit:<4} bound {bound:g}  {'ok' if figure <= bound else 'OVER'}", flush=True)


def run(name: str, *words: object, cwd: Path) -> tuple[float, int]:
    """Run an installed command; its wall-clock seconds and peak memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen([SCRIPTS / name, *map(str, words)], cwd=cwd, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with exit code {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


# -- partition -----------------------------------------------------------------------------------------------------------


def write_list(path: Path, template: bytes, keys: int, numbers: Callable[[np.ndarray], np.ndarray], repeated: int = 0) -> None:
    """A list file of `keys` different lines, and then its first `repeated` lines once more."""
    with path.open("wb") as file:
        for end, count in ((keys, keys), (repeated, repeated)):
            for start in range(0, count, 100_000):
                block = numbers(np.arange(start, min(start + 100_000, end))).tolist()
                file.write(b"".join(template % (number // 10_000, number) for number in block))


def measure_partitioning(scratch: Path, keys: int) -> None:
    """Both lists over 8 partitions and over 1, first and again."""
    assert keys % STRIDE, "give another number of keys"
    write_list(scratch / "sorted.txt", b"photos/%04d/%012d.jpg\n", keys, lambda numbers: numbers)
    coco = b"train2014/%04d/COCO_train2014_%012d.jpg\n"
    write_list(scratch / "shuffled.txt", coco, keys, lambda numbers: numbers * STRIDE % keys, REPEATED)
    for name, repeated in (("sorted", 0), ("shuffled", REPEATED)):
        for partitions in (8, 1):
            output = scratch / f"{name}-{partitions}"
            before = b""
            for turn in ("first", "again"):
                words = ("--list_file", f"{name}.txt", "--partitions", partitions, "--mode", "manifest", "--output", output)
                seconds, peak = run("partition_dataset", *words, cwd=scratch)
                described = (output / "dataset.json").read_bytes()
                told = json.loads(described)
                if (told["found"], told["list_file"]["repeated"]) != (keys, repeated) or before not in (b"", described):
                    raise SystemExit(f"{output}: {told['found']} records, {told['list_file']['repeated']} repeated lines")
                before = described
                what = f"partition_dataset, {keys:,} keys {name}, {partitions} partition(s), {turn}"
                tell(what, seconds, "s", 40)
                tell("  its peak memory", peak / GB, "GB", 1.5)


# -- launch --------------------------------------------------------------------------------------------------------------


def make_network(scratch: Path) -> None:
    """models/tiny: the mean of each colour, adopted as a user would."""
    shape = [1, 3, SIZE, SIZE]
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["images", "axes"], ["means"], keepdims=0)], "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", *shape[1:]])],
        [helper.make_tensor_value_info("means", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.array([2, 3], np.int64), "axes")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), scratch / "tiny.onnx")
    (scratch / "recipe.json").write_text(json.dumps(RECIPE))
    (scratch / "labels.txt").write_text("red\ngreen\nblue\n")
    words = ("--recipe", "recipe.json", "--labels", "labels.txt", "--scores", "logits", "--batch_size", 20)
    run("get_model", "--onnx", "tiny.onnx", "--name", "tiny", *words, cwd=scratch)


@dataclass
class Watched:
    """A running infer_launch and its lines."""

    process: subprocess.Popen[str]
    started: float

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def memory(self) -> tuple[int, int]:
        """Resident bytes of the launcher and of its worker now."""
        pid = self.process.pid
        worker = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        return resident(pid), resident(int(worker))

    def cpu_s(self) -> float:
        """Processor seconds of the launcher so far, without its worker."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident(pid: int) -> int:
    """VmRSS of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def launch(scratch: Path, *words: object) -> Watched:
    """Start infer_launch."""
    command = [SCRIPTS / "infer_launch", *map(str, (*ALONE, *words))]
    started = time.perf_counter()
    return Watched(
        subprocess.Popen(command, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True), started
    )


def measure_launch(scratch: Path, keys: int, num_steps: int) -> None:
    """Time to the first step, and memory from the 20th step on, on each set of partitions of `keys` records."""
    for name in ("sorted-8", "sorted-1", "shuffled-8", "shuffled-1"):
        watched = launch(scratch, "--data_dir", name, "--output", f"out-{name}", "--overwrite")
        handed_out, steps, early, late = 0.0, 0, (0, 0), (0, 0)
        for line in watched.lines():
            if "pictures a step" in line:
                handed_out = time.perf_counter() - watched.started
            if line.startswith("Total"):
                steps += 1
                if steps == 20:
                    early = watched.memory()
                if steps == num_steps:
                    late = watched.memory()
                    watched.process.send_signal(signal.SIGINT)
        watched.process.wait()
        tell(f"infer_launch, {keys:,} records, {name}: to the first step", handed_out, "s", 10)
        for who, first, last in zip(("launcher", "worker"), early, late, strict=True):
            what = f"  {who}: {first / MIB:.0f} MiB at step 20, growth to step {num_steps:,}"
            tell(what, (last - first) / MIB, "MiB", 20)


# -- cpu -----------------------------------------------------------------------------------------------------------------


def cpu_per_picture_us(scratch: Path, pictures: int) -> float:
    """Processor time per picture after the first step, in microseconds: launcher, and the worker's in its median step.

    The median, since whatever else the machine does makes single steps dearer; costs that grow move it all the same.
    """
    watched = launch(scratch, "--generated", "--iterations", pictures // STEP_PICTURES)
    first_s, last_s, lines = 0.0, 0.0, 0
    for line in watched.lines():
        if line.startswith("Total") and lines < pictures // STEP_PICTURES - 1:  # at the last one it may be gone already
            lines, last_s = lines + 1, watched.cpu_s()
            first_s = first_s or last_s
    if watched.process.wait():
        raise SystemExit(f"infer_launch ended with exit code {watched.process.returncode}")
    events = map(json.loads, (scratch / "logs/latest/worker-0.jsonl").read_text().splitlines())
    spent = [event["totals"]["cpu_s"] for event in events if event["kind"] == "StepDone"]
    worker_s = statistics.median(after - before for before, after in pairwise(spent))
    return (worker_s + (last_s - first_s) / (lines - 1)) / STEP_PICTURES * 1e6


def measure_cpu(scratch: Path, rounds: int) -> None:
    """Rounds of 1,000,000 pictures, each between two times three runs of 10,000, which are as noisy as they are short.

    On one core: on several, threads with next to no work fight over the interpreter's lock now and then, at any size of the
    data set, and that costs more than the work.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    ratios, large, small = [], [], []
    for turn in range(rounds):
        before = [cpu_per_picture_us(scratch, 10_000) for _ in range(3)]
        large.append(cpu_per_picture_us(scratch, 1_000_000))
        small.append(statistics.median([*before, *(cpu_per_picture_us(scratch, 10_000) for _ in range(3))]))
        ratios.append(large[-1] / small[-1])
        print(
            f"  round {turn + 1}: {small[-1]:.2f} us at 10,000, {large[-1]:.2f} us at 1,000,000, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    print(f"processor time per picture, medians: {statistics.median(small):.2f} us and {statistics.median(large):.2f} us")
    tell(f"1,000,000 over 10,000 pictures: quartiles {low:.3f} to {high:.3f}, median", middle, "", 1.03)


def main() -> None:
    """Measure what was asked for in a scratch folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("partition", "launch", "cpu"), default=["partition", "launch", "cpu"])
    parser.add_argument("--keys", type=int, default=10_000_000, help="lines of the lists")
    parser.add_argument("--steps", type=int, default=1000, help="steps of 1,000 records after which a launch is stopped")
    parser.add_argument("--rounds", type=int, default=7, help="of cpu, two at least")
    parser.add_argument("--scratch", help="folder for a few GB that is removed at the end; default: the system's")
    options = parser.parse_args()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("pyarrow", "numpy", "onnxruntime"))
    processor = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    print(f"{os.cpu_count()} cores, {processor.partition(': ')[2]}, Python {platform.python_version()}, {versions}")
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        scratch = Path(name)
        if {"partition", "launch"} & set(options.only):
            measure_partitioning(scratch, options.keys)
        if {"launch", "cpu"} & set(options.only):
            make_network(scratch)
        if "launch" in options.only:
            measure_launch(scratch, options.keys, options.steps)
        if "cpu" in options.only:
            measure_cpu(scratch, options.rounds)
    if over:
        raise SystemExit(f"over their bounds: {'; '.join(over)}")


if __name__ == "__main__":
    main()
