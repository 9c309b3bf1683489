"""How many reports a second the launcher takes, and what a device costs it: its engine and its books, without worker processes.

    python -m tools.bench.launcher_events --devices 8 100 1000 5000

Each report is that of a finished step: it is read, counted, and answered with the next step. The launcher runs in this process,
as in a launch; only the processes of the workers are left out, which have other cores or hosts.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bulkinfer.host.screen import Screen
from bulkinfer.launch.engines.local import LocalEngine
from bulkinfer.launch.engines.worker_handle import WorkerHandle
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.reporter import Reporter
from bulkinfer.launch.reporting.totals import Aggregate
from bulkinfer.launch.step_queue import StepQueue
from bulkinfer.types import Step
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.protocol import Command, StepDone, Totals, decode, encode

from tests.launches import launch_of, plan_of

STEP = 1000  # pictures
STAGES = ("decode", "infer", "preprocess", "read", "rows", "wait_for_batch", "wait_for_slot", "write")
TOTALS = Totals({"seconds": dict.fromkeys(STAGES, 1.5), "runs": {str(bucket): 7 for bucket in range(12)}}, 1 << 29, 20.0)


class Silent(WorkerHandle):
    """A worker that nobody runs."""

    def send(self, command: Command) -> None:
        encode(command)


@contextmanager
def engine_of(devices: int, steps: int, folder: Path) -> Iterator[LocalEngine]:
    """The engine of a launch on so many devices, with steps for all of them."""
    launch = replace(launch_of(folder, batches_per_step=STEP // 4), threads=plan_of(devices))
    launch.todo[:] = [Step(0, 0, steps * STEP)]
    progress = Progress(launch)
    with Screen(progress.status, shows_progress=False) as screen:
        hooks = Reporter(launch, Aggregate(time.perf_counter()), progress, screen)
        engine = LocalEngine(folder / "run.json", launch.threads, hooks, batch_size=4, own_partition=False, stall_timeout_s=300)
        engine._queue = StepQueue.of(hooks.make_steps(0.0))
        for index in range(devices):
            marks = shared(1, 1)
            engine._workers[index] = Silent(index, None, -1, InFlight(1, 1, marks), Path(os.devnull), ready=True)  # type: ignore[arg-type]
            os.close(marks)
        yield engine


def memory_bytes(devices: int) -> float:
    """What Python holds for a device, and the shared page that a worker marks its pictures in."""
    with tempfile.TemporaryDirectory() as folder:
        tracemalloc.start()
        try:
            with engine_of(devices, 2 * devices, Path(folder)) as engine:
                engine._feed()
                held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return held / devices + mmap.PAGESIZE


def measure(devices: int, reports: int) -> str:
    """Take so many reports; a line about it."""
    with tempfile.TemporaryDirectory() as folder, engine_of(devices, reports + 3 * devices, Path(folder)) as engine:
        engine._feed()
        began = time.perf_counter()
        for number in range(reports):
            worker = engine._workers[number % devices]
            done = StepDone(worker.held[0], STEP, STEP, {}, "0" * 64, 10.0, 0.1, 9.0, TOTALS)
            engine._handle(worker, decode(encode(done).encode()))
        rate = reports / (time.perf_counter() - began)
    return f"{devices:>6,} devices: {rate:8,.0f} reports a second, {memory_bytes(devices) / 1024:.0f} KiB a device"


def main() -> None:
    """Print a line for each number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 100, 1000, 5000])
    parser.add_argument("--reports", type=int, default=5000, help="reports of each")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for devices in given.devices:
        print(measure(devices, given.reports))


if __name__ == "__main__":
    main()
