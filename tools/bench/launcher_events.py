"""How many reports a second the launcher takes, and what a device costs it: all of its engine, with stand-ins for the workers.

    python -m tools.bench.launcher_events --devices 8 100 1000 5000

A second process is at the other end of the pipes of all workers: it answers each step at once with the report that it is done.
So the launcher of `--engine local` does all that it does in a launch, but for starting processes: it waits for reports, reads
and counts them, looks at its workers now and then, and hands out steps. The rate is that of finished steps, with the launcher
on one core and the stand-ins on another one.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import selectors
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.host.screen import Screen
from bulkinfer.host.usage import cpu_seconds
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.engines import EngineOptions, local
from bulkinfer.launch.engines.local import LocalEngine
from bulkinfer.launch.engines.worker_handle import WorkerHandle
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.reporter import Reporter
from bulkinfer.launch.reporting.totals import Aggregate
from bulkinfer.types import Step
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.protocol import End, Ended, Event, Ready, RunStep, StepDone, Totals, decode, encode

from tests.launches import launch_of, plan_of

STEP = 1000  # pictures
STAGES = ("decode", "infer", "preprocess", "read", "rows", "wait_for_batch", "wait_for_slot", "write")
PROOF = {"nodes": {"CPUExecutionProvider": 5}, "device": "CPU", "precision": "fp32", "onnxruntime": "1.32"}
TOTALS = Totals({"seconds": dict.fromkeys(STAGES, 1.5), "runs": {str(bucket): 7 for bucket in range(12)}}, 1 << 29, 20.0)


class Pipes:
    """Two pipes for each worker: commands of the launcher, and reports of the worker."""

    def __init__(self, devices: int) -> None:
        self.commands = [os.pipe() for _ in range(devices)]
        self.reports = [os.pipe() for _ in range(devices)]

    def keep(self, *, of_launcher: bool) -> None:
        """Close the other process's ends."""
        for pairs, is_read in ((self.commands, False), (self.reports, True)):
            for read, written in pairs:
                os.close(written if is_read == of_launcher else read)


def stand_in(pipes: Pipes) -> None:
    """All workers: ready at once, and a step takes no time."""
    selector = selectors.DefaultSelector()
    ready = encode(Ready(PROOF, 1.0, 0.0, {}, 1)).encode() + b"\n"
    ended = encode(Ended(TOTALS)).encode() + b"\n"
    for (commands, _), (_, reports) in zip(pipes.commands, pipes.reports, strict=True):
        selector.register(commands, selectors.EVENT_READ, reports)
        os.write(reports, ready)
    while selector.get_map():
        for key, _ in selector.select():
            lines = os.read(key.fd, 1 << 16).splitlines()
            if not lines:
                return  # the launcher has ended early
            for line in lines:
                command = decode(line)
                if isinstance(command, RunStep):
                    done = StepDone(command.step, STEP, STEP, {}, "0" * 64, 10.0, 0.1, 9.0, TOTALS)
                    os.write(key.data, encode(done).encode() + b"\n")
                elif isinstance(command, End):
                    os.write(key.data, ended)
                    os.close(key.data)
                    selector.unregister(key.fd)


class StandIn:
    """In place of the process of a worker."""

    pid = 0

    def __init__(self, commands: int) -> None:
        self.stdin = open(commands, "wb", buffering=0)  # noqa: SIM115 - closed by WorkerHandle.close

    def wait(self) -> int:
        """Its exit code."""
        return 0

    def kill(self) -> None:
        """Nothing: it ends with its pipes."""


class Timed(Reporter):
    """The hooks of a launch, which note when the first and the last step were reported."""

    first = last = count = 0.0

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        """As in a launch."""
        if isinstance(event, StepDone):
            self.last = time.perf_counter()
            self.first = self.first or self.last
            self.count += 1
        return super().on_event(worker, event, busy_workers)


def start_in_place(pipes: Pipes) -> Any:
    """In place of start_worker: the handle of a stand-in."""

    def start(_run_file: Path, index: int, *_: Any, **__: Any) -> WorkerHandle:
        marks = shared(1, 1)
        in_flight = InFlight(1, 1, marks)
        os.close(marks)
        process: Any = StandIn(pipes.commands[index][1])
        return WorkerHandle(index, process, pipes.reports[index][0], in_flight, Path(os.devnull))

    return start


def prepared(folder: Path, devices: int, reports: int) -> Launch:
    """A launch with a step for each report."""
    launch = replace(launch_of(folder, batches_per_step=STEP // 4), threads=plan_of(devices))
    launch.todo[:] = [Step(0, 0, reports * STEP)]
    return launch


def measure(devices: int, reports: int) -> str:
    """Take so many reports; a line about it."""
    pipes = Pipes(devices)
    if not (child := os.fork()):
        pipes.keep(of_launcher=False)
        stand_in(pipes)
        os._exit(0)
    pipes.keep(of_launcher=True)
    with tempfile.TemporaryDirectory() as folder:
        launch = prepared(Path(folder), devices, reports)
        progress = Progress(launch)
        plain, before = local.start_worker, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Screen(progress.status, shows_progress=False) as screen:
            hooks = Timed(launch, Aggregate(time.perf_counter()), progress, screen)
            engine = LocalEngine(Path(folder) / "run.json", launch.threads, hooks, EngineOptions(4, stall_timeout_s=300))
            local.start_worker = start_in_place(pipes)
            used_s = cpu_seconds([])
            try:
                engine.run()
            finally:
                local.start_worker = plain
            used_s = cpu_seconds([]) - used_s
    os.waitpid(child, 0)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    rate = (hooks.count - 1) / (hooks.last - hooks.first)
    return (
        f"{devices:>6,} devices: {rate:8,.0f} reports a second, {1000 * used_s / reports:.2f} ms of CPU time for each; "
        f"{(grown / devices + mmap.PAGESIZE) / 1024:.0f} KiB a device"
    )


def main() -> None:
    """Print a line for each number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 100, 1000, 4000])
    parser.add_argument("--reports", type=int, default=20_000, help="reports of each")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for devices in given.devices:
        print(measure(devices, given.reports), flush=True)


if __name__ == "__main__":
    main()
