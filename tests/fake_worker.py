"""Stands in for a worker process: takes steps on stdin, "publishes" them, and dies of the records it is told to.

Run as the launcher runs a worker: [-P -m inference.worker_process] RUN.json INDEX REPORT_FD. RUN.json may hold: `deadly`
(record numbers that kill), `die_at_start`, `refuse` and `lazy` (workers that refuse, or end well after their first step),
`slow_s` (seconds a step takes), `deaf` (ignores a stop). What was published is a file part-<partition>-<start>-<end> beside
RUN.json; to publish one twice is a failure.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

run_file, index, report = Path(sys.argv[-3]), int(sys.argv[-2]), int(sys.argv[-1])
run: dict[str, Any] = json.loads(run_file.read_text())
signal.signal(signal.SIGINT, signal.SIG_IGN)


def tell(event: str, **facts: Any) -> None:
    """One report."""
    os.write(report, json.dumps({"event": event, **facts}).encode() + b"\n")


def publish(step: list[int], count: int, killer: str | None = None) -> None:
    """Leave a file, and report it."""
    name = f"part-{step[0]}-{step[1]}-{step[1] + count}"
    with (run_file.parent / name).open("x") as file:
        file.write(killer or "")
    tell("step", step=step, count=count, worker=index)


def listen(messages: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Messages as they come; the end of stdin without an end or a stop ends the process."""
    for line in sys.stdin.buffer:
        messages.put(json.loads(line))
    os._exit(1)


def main() -> int:
    """Work until told to end; returns the exit code."""
    print("started with cores", sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS"), flush=True)
    if run.get("die_at_start"):
        print("ImportError: libtbb.so.12", flush=True)
        return 7
    if index in run.get("refuse", []):
        tell("refused", message="--device openvino cannot run it", exit_code=2)
        return 2
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(messages,), daemon=True).start()
    tell("ready", warm_up_rate=50.0 + index, pid=os.getpid())
    while True:
        message = messages.get()
        if "end" in message or ("stop" in message and not run.get("deaf")):
            tell("end")
            return 0
        if "killer" in message:
            publish(message["killer"], 1, message["message"])
        if "step" in message:
            step = message["step"]
            time.sleep(run.get("slow_s", 0.0))
            if set(run.get("deadly", [])) & set(range(step[1], step[2])):
                os.kill(os.getpid(), signal.SIGKILL)
            publish(step, step[2] - step[1])
            if index in run.get("lazy", []):
                return 0


os._exit(main())
