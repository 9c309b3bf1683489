"""Ray Data: read_binary_files, a map that decodes and prepares, and actors that hold a session of onnxruntime."""

from __future__ import annotations

import io
import os
import time
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray
from laps import picture_paths, read_job, tree_cpu_s, write_result
from PIL import Image
from recipe import Graph, Preparation

BATCHES_PER_BLOCK = 4  # so that no batch is cut by the border of a block


class Prepare:
    """One row: bytes -> prepared picture."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._prepare = Preparation(job)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        with Image.open(io.BytesIO(row["bytes"])) as image:
            return {"path": row["path"], "image": self._prepare(image)}


class Classify:
    """Batch -> best classes, with the time at which it was finished, and the CPU time of the whole run until its first one."""

    def __init__(self, job: dict[str, Any], threads: int, driver: int) -> None:
        self._graph, self._driver, self._is_first = Graph(job, threads=threads), driver, True

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        best = self._graph.best_classes_of_some(batch["image"])
        finished_s, count, cpu_s = time.monotonic(), len(best), -1.0
        if self._is_first:
            cpu_s, self._is_first = tree_cpu_s(self._driver), False
        return {
            "path": batch["path"],
            "best": best,
            "finished_s": np.full(count, finished_s),
            "count": np.full(count, count),
            "cpu_s": np.full(count, cpu_s),
        }


def run(job: dict[str, Any]) -> dict[str, Any]:
    """One pass over the pictures; the rows as columns, and the settings."""
    # One actor for each core decodes and infers on one thread, and leaves half a core to the tasks that read; Ray puts the map
    # into the actors. By default there is one actor, in which onnxruntime takes all cores.
    actors, threads, actor_cpus = (1, 0, 1.0) if job["defaults"] else (job["cores"], 1, 0.5)
    blocks = None if job["defaults"] else max(1, len(picture_paths(job)) // (BATCHES_PER_BLOCK * job["batch_size"]))
    rows = (
        ray.data.read_binary_files(job["pictures"], include_paths=True, override_num_blocks=blocks)
        .map(Prepare(job).__call__)
        .map_batches(
            Classify,
            batch_size=job["batch_size"],
            fn_constructor_args=(job, threads, os.getpid()),
            compute=ray.data.ActorPoolStrategy(size=actors),
            num_cpus=actor_cpus,
        )
    )
    found = list(rows.iter_batches(batch_size=None))
    columns = {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}
    columns["settings"] = {"actors": actors, "threads_per_actor": threads, "blocks": blocks}
    return columns


def main() -> None:
    """Start Ray on this host, run, and write the result."""
    job = read_job()
    ray.init(num_cpus=job["cores"], include_dashboard=False, log_to_driver=False, _temp_dir=job["scratch"])
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        found = run(job)
        end_cpu_s = tree_cpu_s(os.getpid())
    finally:
        ray.shutdown()
    first = int(found["finished_s"].argmin())
    answers = {os.path.basename(path): int(best) for path, best in zip(found["path"], found["best"], strict=True)}
    short = len({*found["finished_s"][found["count"] < job["batch_size"]].tolist()})
    write_result(
        job,
        answers,
        pictures=len(found["best"]) - int(found["count"][first]),
        seconds=float(found["finished_s"].max() - found["finished_s"][first]),
        cpu_s=end_cpu_s - float(found["cpu_s"][first]),
        facts={**found["settings"], "short_batches": short},
    )


if __name__ == "__main__":
    main()
