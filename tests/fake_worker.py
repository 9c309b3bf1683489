"""Stands in for a worker process: takes steps on stdin, "publishes" them, and dies of the records it is told to.

Called as a worker is: RUN.json INDEX REPORT_FD IN_FLIGHT_FD are its last words. RUN.json may hold, beside `slow_s` and
`slow_records_s` (seconds that a step and a record take), `gated` (no step is done before there is a file `go` beside RUN.json;
a list names the workers of which that is so) and `deaf` (ignores a stop):

    by record   `deadly` (kills whoever runs it), `hanging` (never ends), each after it was marked as in hand; `lost` (its step
                is published, then the worker dies without a report)
    by worker   `never_ready`, `die_at_start`, `refuse`, `refuse_late` (after its first step), `lazy` (ends well after its first
                step), `crash_at_end` and `hang_at_end` (after it has said that all is done)

What was published is a file part-<partition>-<start>-<end> beside RUN.json; to publish one twice is a failure.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bulkinfer.types import Fault, Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.protocol import (
    ZEROS_FIRST,
    Command,
    End,
    Ended,
    Event,
    Ready,
    Refused,
    RunStep,
    StepDone,
    Stop,
    Totals,
    decode,
    encode,
)

run_file, index, report = Path(sys.argv[-4]), int(sys.argv[-3]), int(sys.argv[-2])
run: dict[str, Any] = json.loads(run_file.read_text())
signal.signal(signal.SIGINT, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
in_flight = InFlight(1, 1, int(sys.argv[-1]))
commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
stopping = threading.Event()
NOTHING_USED = Totals({"seconds": {}, "runs": {}}, 0, 0.0)


def tell(event: Event) -> None:
    """One report."""
    os.write(report, encode(event).encode() + b"\n")


def is_among(name: str) -> bool:
    """Whether this worker is one of those that RUN.json lists under `name`."""
    return index in run.get(name, [])


def holds(step: Step, name: str) -> bool:
    """Whether the step has one of the records that RUN.json lists under `name`."""
    return any(step.start <= number < step.end for number in run.get(name, []))


def listen() -> None:
    """Commands as they come; the end of stdin without an end or a stop ends the process."""
    for line in sys.stdin.buffer:
        command = decode(line)
        if isinstance(command, Stop) and not run.get("deaf"):
            stopping.set()
        commands.put(command)
    os._exit(1)


def run_step(step: Step, fault: Fault | None) -> None:
    """Leave a file, and report it."""
    gated = run.get("gated")
    while (
        (index in gated if isinstance(gated, list) else gated)
        and not (run_file.parent / "go").exists()
        and not stopping.is_set()
    ):
        time.sleep(0.005)
    if stopping.wait(run.get("slow_s", 0.0)):
        return
    for number in () if fault else range(step.start, step.end):
        in_flight.streams[0].set(step.partition, number, number + 1)
        time.sleep(run.get("slow_records_s", 0.0))
        if number in run.get("deadly", []):
            os.kill(os.getpid(), signal.SIGKILL)
        if number in run.get("hanging", []):
            threading.Event().wait()
    in_flight.streams[0].clear()
    with (run_file.parent / f"part-{step.partition}-{step.start}-{step.end}").open("x") as file:
        file.write(fault.message if fault else "")
    if holds(step, "lost"):
        os.kill(os.getpid(), signal.SIGKILL)
    count = len(step)
    stages = {} if fault is None else {fault.stage: count}
    tell(StepDone(step, count, count - sum(stages.values()), stages, "", 1.0, 0.0, 1.0, NOTHING_USED))


def main() -> int:
    """Work until told to end; returns the exit code."""
    zeros = ["zeros first"] if ZEROS_FIRST in sys.argv else []
    print("started with cores", sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS"), *zeros, flush=True)
    if is_among("die_at_start"):
        print("ImportError: libtbb.so.12", flush=True)
        return 7
    if is_among("refuse"):
        tell(Refused("--device openvino cannot run it", 2))
        return 2
    threading.Thread(target=listen, daemon=True).start()
    if is_among("never_ready"):
        threading.Event().wait()
    tell(Ready({}, 0.1, 50.0 + index, {}, os.getpid()))
    while not stopping.is_set():
        command = commands.get()
        if isinstance(command, End):
            break
        if isinstance(command, RunStep):
            run_step(command.step, command.fault)
            if is_among("lazy"):
                return 0
            if is_among("refuse_late"):
                tell(Refused("the manifest was replaced", 2))
                return 2
    tell(Ended(NOTHING_USED))
    if is_among("hang_at_end"):
        threading.Event().wait()
    if is_among("crash_at_end"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return 0


if __name__ == "__main__":
    os._exit(main())
