"""Real launches beside their simulation: 1, 2 and 8 workers on this host, whose device is a sleep.

    python -m tools.bench.check_simulation --rounds 9

The network of each worker sleeps, so that any number of workers fits on the cores of this host. The simulation gets what the
runs with the fewest workers measured: what a batch takes with the sleep, and what a part takes to publish. From the runs with
more workers it gets only when each of them was ready. Compared is the time from the first ready worker to the last part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import command
from tests.launches import write_photos
from tests.models import write_tiny_model
from tools.simulate_scale import Scale, simulate

BATCH, BATCHES_PER_STEP = 4, 5
SITE = """
import importlib.abc, importlib.util, sys, time

class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "bulkinfer.runtime.session":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        plain_exec = spec.loader.exec_module
        def exec_module(module):
            plain_exec(module)
            plain = module.Session.run
            def run(session, images):
                time.sleep(SLEEP_S)
                return plain(session, images)
            module.Session.run = run
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Hook())
"""


@dataclass(frozen=True)
class Run:
    """One launch. `ready_s` is when each worker was ready, after the first one; `seconds` from then to the last part."""

    seconds: float
    ready_s: tuple[float, ...]
    write_s: float  # of a step
    compute_s: float  # of a batch


def launch(place: Path, workers: int, name: str) -> Run:
    """Run all pictures of `place` on so many workers."""
    words = ["--model_name", "tiny", "--batch_size", BATCH, "--batches_per_step", BATCHES_PER_STEP, "--device", "cpu",
             "--precision", "fp32", "--num_devices", workers, "--streams", 1, "--num_workers", 1, "--threads_per_stream", 1,
             "--data_dir", "photos", "--output", f"out-{name}", "--log_path", f"logs-{name}"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(place / "site")}
    subprocess.run(command("infer_launch", *words), cwd=place, env=environment, check=True, capture_output=True)
    folder = place / f"logs-{name}" / "latest"
    events = [json.loads(line) for path in folder.glob("worker-*.jsonl") for line in path.read_text().splitlines()]
    ready = sorted(event["time"] for event in events if event["kind"] == "Ready")
    steps = [event for event in events if event["kind"] == "StepDone"]
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return Run(
        seconds=max(event["time"] for event in steps) - ready[0],
        ready_s=tuple(time - ready[0] for time in ready),
        write_s=summary["stage_thread_seconds"]["write"] / len(steps),
        compute_s=summary["run_percentiles_s"]["p50"],
    )


def middle(values: list[float]) -> float:
    return statistics.median(values)


def main() -> None:
    """Print the median of the runs with each number of workers, and what the simulation says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--sleep_s", type=float, default=0.1, help="what a batch takes on the device")
    parser.add_argument("--pictures", type=int, default=480)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_tiny_model(place / "models", batch_sizes=(BATCH,))
        write_photos(place / "photos", given.pictures)
        (place / "site").mkdir()
        (place / "site" / "sitecustomize.py").write_text(f"SLEEP_S = {given.sleep_s!r}\n{SITE}")
        runs: dict[int, list[Run]] = {workers: [] for workers in given.workers}
        for number in range(given.rounds):
            for workers in given.workers:
                runs[workers].append(launch(place, workers, f"{workers}-{number}"))
    one = runs[min(runs)]
    batch_s, put_s = middle([run.compute_s for run in one]), middle([run.write_s for run in one])
    print(f"a batch {batch_s:.4f} s, a part {put_s:.4f} s, {given.rounds} rounds")
    for workers, found in runs.items():
        ready_s = tuple(middle([run.ready_s[worker] for run in found]) for worker in range(workers))
        scale = Scale(pictures=given.pictures, devices=workers, rate=BATCH / batch_s, step_pictures=BATCH * BATCHES_PER_STEP,
                      ready_s=ready_s, put_s=put_s, puts_per_s=1e6, picture_bytes=1)  # fmt: skip
        real, simulated = middle([run.seconds for run in found]), simulate(scale).seconds
        quartiles = statistics.quantiles([run.seconds for run in found], n=4) if len(found) > 1 else [real] * 3
        print(f"{workers} workers: {real:.2f} s ({quartiles[0]:.2f} to {quartiles[2]:.2f}), simulated {simulated:.2f} s, "
              f"{100 * (simulated / real - 1):+.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
