"""Launches of infer_launch, and what its own logs say of them: for the comparisons of this folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from comparison import Finished, RefusedError
from peer_scripts.laps import tree_cpu_s

SCRIPTS = Path(sys.executable).parent
LIMIT_S = 1800  # of one run
_POLL_S = 0.02


@dataclass(frozen=True)
class Launched:
    """A launch that has ended. `cpu_s` is what its processes used from the mark on until the last of them had ended."""

    folder: Path  # of its job, below the log path
    started_s: float  # time.time() right before its exec
    cpu_s: float

    def events(self, worker: int, kind: str) -> list[dict[str, Any]]:
        """What a worker reported, as it stands in its log."""
        return read_events(self.folder / f"worker-{worker}.jsonl", kind)

    def steps(self, worker: int) -> list[Finished]:
        """When a worker had published which number of pictures."""
        return [Finished(event["time"], event["count"]) for event in self.events(worker, "StepDone")]

    def affinity(self, worker: int) -> str:
        """The cores of a worker, as it found them itself."""
        lines = (self.folder / f"worker-{worker}.log").read_text().splitlines()
        return next(line.removeprefix("cores ").partition(";")[0] for line in lines if line.startswith("cores "))

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found

    def answers(self) -> dict[str, int]:
        """key -> best class. Raises RefusedError if a picture has an error row."""
        rows = pq.read_table(self.folder / "results", columns=["key", "status", "class_ids"]).to_pylist()
        if bad := [row["key"] for row in rows if row["status"] != "ok"]:
            raise RefusedError(f"{len(bad)} pictures have error rows, {bad[0]} first: take them out of --data_dir")
        return {row["key"]: row["class_ids"][0] for row in rows}


def read_events(path: Path, kind: str) -> list[dict[str, Any]]:
    """The whole lines of one kind of a worker's event log; none if it is not there yet."""
    if not path.exists():
        return []
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def infer_launch(words: Sequence[object], log_path: Path, *, mark: str = "StepDone", checkout: Path | None = None) -> Launched:
    """Run infer_launch into a new folder of logs.

    CPU time counts from worker 0's first event of the kind `mark`; without one from the start. With `checkout` the package of
    another checkout runs. Raises RefusedError if it does not end with 0, or takes too long.
    """
    log_path.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "inference")} if checkout else None
    command = [str(SCRIPTS / "infer_launch"), *map(str, words), "--log_path", str(log_path)]
    said, latest = log_path / "said.txt", log_path / "latest"
    cpu_at_mark: float | None = None
    with said.open("w") as output:
        started_s = time.time()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if mark and cpu_at_mark is None and read_events(latest / "worker-0.jsonl", mark):
                    cpu_at_mark = tree_cpu_s(process.pid)
                if time.time() - started_s > LIMIT_S:
                    raise RefusedError(f"infer_launch has not ended after {LIMIT_S} s")
                time.sleep(_POLL_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        last = "".join(said.read_text().splitlines()[-1:])
        raise RefusedError(f"infer_launch ended with exit code {process.returncode}: {last}")
    cpu_s = usage.ru_utime + usage.ru_stime - (cpu_at_mark or 0.0)
    return Launched(latest.resolve(), started_s, cpu_s)
