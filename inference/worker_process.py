"""The process around the main path: owns one device, takes steps on stdin, publishes parts, reports on a pipe.

    python -m inference.worker_process RUN.json INDEX [REPORT_FD]

Messages in: {"step": [partition, start, end]}, {"killer": [partition, start, end], "message": "..."}, {"end": true},
{"stop": true}. When stdin closes without an end the launcher is gone and this process ends at once, also during a run.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from inference.card import Recipe, check_graph_files
from inference.decode import prepare_decoder
from inference.decoder_notices import warning_counts
from inference.errors import BulkinferError, RunError
from inference.loader import BatchSource, Limits, Loader, SyntheticLoader, load_record
from inference.manifest import Manifest
from inference.metrics import Meter, Metrics
from inference.paths import read_json
from inference.postprocess import StepRows, task_for
from inference.preprocess import normalise
from inference.providers import SessionSpec, describe_proof
from inference.results import write_part
from inference.runlog import EventLog, cpu_seconds, peak_memory_bytes, say, step_line, versions
from inference.session import Session, warm_up
from inference.types import Facts, Record, Step
from inference.worker import StepFeed, Tally, run_steps

_PR_SET_PDEATHSIG = 1


class Worker:
    """One launch's worker number `index`: session, loader and the bookkeeping between main path and launcher.

    `report` gets each event for the launcher, `say` each line of the worker's text log.
    """

    def __init__(
        self, run: dict[str, Any], index: int, *, report: Callable[[dict[str, Any]], None], say: Callable[[str], None]
    ) -> None:
        self.run, self.index, self._report, self._say = run, index, report, say
        self.config: dict[str, Any] = run["config"]
        self.meter = Meter()
        self.feed = StepFeed()
        self.source: BatchSource | None = None
        self.log = EventLog(Path(run["log_dir"]) / f"worker-{index}.jsonl")
        self._manifests: dict[int, Manifest] = {}
        self._open_rows: dict[Step, Any] = {}
        self._last_line = time.perf_counter()
        self._last_metrics = Metrics()
        self.stopping = False
        self.ended = False

    def tell(self, event: str, **facts: Any) -> None:
        """One event to the launcher and into the JSON log."""
        self.log.write(event, **facts)
        self._report({"event": event, **facts})

    def take(self, message: dict[str, Any]) -> None:
        """One message of the launcher; called from another thread than the one that works."""
        if "step" in message:
            self.feed.put(Step(*message["step"]))
        elif "killer" in message:
            self.publish_killer(Step(*message["killer"]), message["message"])
        elif "stop" in message:
            self.stop()
        elif "end" in message:
            self.ended = True
            self.feed.close()

    def stop(self) -> None:
        """Begin no further batch; what is finished gets published."""
        self.stopping = True
        self.feed.close()
        if self.source:
            self.source.stop()

    # -- life ------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Decoder, session, task, warm-up; tells the launcher "ready"."""
        prepare_decoder()
        run, plan, config = self.run, self.run["plan"], self.config
        card, sidecar, graph = check_graph_files(Path(run["model_folder"]), config["batch_size"])
        if sidecar.sha256 != run["metadata"]["graph_sha256"]:
            raise RunError(f"{graph} was replaced during the run: run the job again, with another --output")
        self.recipe: Recipe = card.recipe
        spec = SessionSpec(**run["session"])
        self.task = task_for(card, tuple(config["save"]), config["top_k"], run["output_shapes"])
        self.session = Session(spec, self.task.outputs)
        rate = warm_up(self.session, plan["streams"], run["warm_up_s"])
        self.metadata = {**run["metadata"], "ran": self.session.proof, "versions": versions()}
        self._say(
            f"{describe_proof(self.session.proof)}; loaded in {self.session.load_s:.2f} sec, warm-up {rate:.1f} images/sec"
        )
        self.tell("ready", proof=self.session.proof, load_s=self.session.load_s, warm_up_rate=rate, versions=versions(),
                  pid=os.getpid())  # fmt: skip

    def work(self) -> None:
        """Run steps until the feed ends; then publish what a stop left whole of unfinished ones."""
        shape = self.session.batch_shape
        if self.config["synthetic"]:
            self.source = SyntheticLoader(self.feed, new_rows=self._new_tally, batch=self._synthetic_batch())
        else:
            height, width = self.recipe.height, self.recipe.width
            limits = Limits(self.config["max_pixels"], self.config["max_file_bytes"])

            def load(record: Record, out: np.ndarray[Any, Any]) -> Facts:
                return load_record(record, self.recipe, limits, out, self.meter)

            self.source = Loader(
                self.feed,
                records=self._records,
                new_rows=self._new_rows,
                load=load,
                batch_shape=(shape[0], height, width, 3),
                num_threads=self.run["plan"]["num_workers"],
                num_streams=self.run["plan"]["streams"],
                meter=self.meter,
            )
        if self.stopping:
            self.source.stop()
        self._last_line = time.perf_counter()
        run_steps(self.source, self.session, to_input=self._to_input, num_streams=self.run["plan"]["streams"],
                  meter=self.meter, publish=self.publish)  # fmt: skip
        for rows in list(self._open_rows.values()):
            if count := rows.finished_prefix():
                self.publish(rows, count)
        for kind, count in warning_counts().items():
            self._say(f"the decoder warned {count} times: {kind}")
        self.log.write("modules", names=sorted({name.partition(".")[0] for name in sys.modules}))
        self.tell("end", decoder_warnings=warning_counts(), **self._totals())

    def _synthetic_batch(self) -> np.ndarray[Any, Any]:
        pixels = np.random.default_rng(0).integers(0, 256, self.session.batch_shape, np.uint8)
        return pixels if self.session.dtype == np.uint8 else (pixels / np.float32(127.5) - 1).astype(self.session.dtype)

    def _to_input(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if images.dtype == self.session.dtype:
            return images
        with self.meter.timing("preprocess"):
            return normalise(images, self.recipe)

    def _records(self, step: Step) -> Iterator[Record]:
        if step.partition not in self._manifests:
            self._manifests[step.partition] = Manifest.read(Path(self.run["manifests"][str(step.partition)]))
        return self._manifests[step.partition].records(step.start, step.end)

    def _new_rows(self, step: Step) -> StepRows:
        rows = StepRows(step, self.task, self.session.batch_shape[0])
        self._open_rows[step] = rows
        return rows

    def _new_tally(self, step: Step) -> Tally:
        rows = Tally(step)
        self._open_rows[step] = rows
        return rows

    # -- publishing ------------------------------------------------------------------------------------------------------

    def publish(self, rows: Any, count: int | None = None) -> None:
        """Write the part, log the step's line, tell the launcher. `count` is given for a step that was cut short."""
        count = len(rows.step) if count is None else count
        del self._open_rows[rows.step]
        facts: dict[str, Any] = {"ok": count, "errors": 0, "stages": {}, "sha256": ""}
        if isinstance(rows, StepRows):
            facts = write_part(Path(self.run["output"]), rows, count, self.metadata).as_json()
        now, metrics = time.perf_counter(), self.meter.snapshot()
        streams = self.run["plan"]["streams"]
        total_s, self._last_line = now - self._last_line, now
        wait_s, compute_s = (
            (metrics.seconds[stage] - self._last_metrics.seconds[stage]) / streams for stage in ("wait_for_batch", "infer")
        )
        self._last_metrics = metrics
        self._say(step_line(total_s, wait_s, compute_s, count))
        self.tell("step", step=[rows.step.partition, rows.step.start, rows.step.end], count=count, total_s=total_s,
                  wait_s=wait_s, compute_s=compute_s, **facts, **self._totals())  # fmt: skip

    def publish_killer(self, step: Step, message: str) -> None:
        """The error row of a single record that ends every process that touches it."""
        rows = self._new_rows(step)
        (record,) = self._records(step)
        rows.records[0] = record
        rows.errors[0] = ("infer", message)
        self.publish(rows)

    def _totals(self) -> dict[str, Any]:
        return {"metrics": self.meter.snapshot().as_json(), "peak_memory_bytes": peak_memory_bytes(), "cpu_s": cpu_seconds()}


def die_with_parent() -> None:
    """The kernel kills this process when the launcher dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def listen(worker: Worker) -> None:
    """Hand the launcher's messages to the worker until stdin closes; an end without notice ends the process."""
    for line in sys.stdin.buffer:
        worker.take(json.loads(line))
    if not worker.ended:
        os._exit(1)


def serve(worker: Worker) -> int:
    """Open and work; every failure is told to the launcher. Returns the exit code."""
    try:
        worker.open()
        worker.work()
    except BulkinferError as error:
        worker.tell("refused", message=str(error), exit_code=error.exit_code)
        return error.exit_code
    except OSError as error:
        where = f": {error.filename}" if error.filename is not None else ""
        worker.tell("refused", message=f"{error.strerror or error}{where}", exit_code=1)
        return 1
    return 0


def main(argv: list[str]) -> None:
    """Run one worker; ends the process, since daemon threads may still be inside the runtime."""
    run_file, index = argv[0], int(argv[1])
    pipe = os.fdopen(int(argv[2]), "w", buffering=1) if len(argv) > 2 else sys.stdout
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides when to stop
    say(f"$ {sys.executable} -m inference.worker_process {run_file} {index}")
    worker = Worker(read_json(Path(run_file)), index, report=lambda event: print(json.dumps(event), file=pipe), say=say)
    say(f"cores {sorted(os.sched_getaffinity(0))}; {json.dumps(worker.config)}")
    threading.Thread(target=listen, args=(worker,), name="listen", daemon=True).start()
    try:
        code = serve(worker)
    except Exception:  # ours: the traceback goes to the log, the launcher quotes its end
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
