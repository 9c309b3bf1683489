"""How far a launch has come: counts what its workers report, between steps too."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from bulkinfer.host.status import ENDED, FAILED, RUNNING, STARTING, Pace, Status, WorkerStatus
from bulkinfer.launch.claim import Launch
from bulkinfer.worker.protocol import Died, Ended, Event, Ready, Recovered, Refused, StepDone

_LOADERS_WAIT, _STREAMS_WAIT = "wait_for_slot", "wait_for_batch"  # stages of metrics.py


@dataclass
class _Process:
    """The process of a worker: what it has done, and the two waits as shares of the time of its last step."""

    state: str = STARTING
    streams: int = 0
    loaders: int = 0
    finished: int = 0
    published: int = 0
    seen_s: float = 0.0  # when it reported last
    waited: Counter[str] = field(default_factory=Counter)  # seconds of its threads until then
    shares: dict[str, float] = field(default_factory=dict)


class Progress:
    """The status of one launch. Its methods may be called by different threads."""

    def __init__(self, launch: Launch) -> None:
        self._launch, self._lock, self._pace = launch, threading.Lock(), Pace()
        rows = launch.job_file.count_rows() if launch.job_file is not None else None
        self._errors: Counter[str] = Counter(rows.errors_by_stage if rows else {})
        self._total = None if launch.output is None else launch.job.num_records
        self._done = 0 if self._total is None else self._total - sum(map(len, launch.todo))
        own = 0 if launch.job.config.engine == "ray" else launch.threads.num_devices  # those of other hosts come as they start
        self._workers = {index: _Process() for index in range(own)}

    def expect(self, pictures: int) -> None:
        """The number of pictures of a run without a data set, once it is known."""
        with self._lock:
            self._total = pictures

    def finished(self, worker: int, pictures: int) -> None:
        """So many pictures have their rows in the present process of a worker; they may not be published yet."""
        with self._lock:
            self._workers.setdefault(worker, _Process()).finished = pictures

    def add(self, worker: int, event: Event) -> None:
        """Count one event of a worker."""
        with self._lock:
            process = self._workers.setdefault(worker, _Process())
            if isinstance(event, Ready):
                process.state, process.seen_s = RUNNING, time.perf_counter()
                process.streams = event.streams or self._launch.threads.streams
                process.loaders = event.num_workers or self._launch.threads.num_workers
            elif isinstance(event, StepDone):
                self._published(process, event.count)
                self._errors.update(event.stages)
                self._note_waits(process, Counter(event.totals.metrics["seconds"]))
            elif isinstance(event, Recovered):
                self._published(process, len(event.step))
            elif isinstance(event, Died):
                self._workers[worker] = _Process(STARTING if event.by_another else FAILED)
            elif isinstance(event, Ended | Refused):
                process.state = ENDED if isinstance(event, Ended) else FAILED

    def _published(self, process: _Process, pictures: int) -> None:
        self._done += pictures
        process.published += pictures

    def _note_waits(self, process: _Process, seconds: Counter[str]) -> None:
        """The shares of the time since the last report in which the threads of a worker waited."""
        now = time.perf_counter()
        for stage, count in ((_STREAMS_WAIT, process.streams), (_LOADERS_WAIT, process.loaders)):
            waited_s = seconds[stage] - process.waited[stage]
            process.shares[stage] = min(1.0, max(0.0, waited_s / (max(1, count) * max(now - process.seen_s, 1e-9))))
        process.seen_s, process.waited = now, seconds

    def status(self) -> Status:
        """How far the launch has come by now."""
        with self._lock:
            processes = self._workers.values()
            done = self._done + sum(max(0, process.finished - process.published) for process in processes)
            done = done if self._total is None else min(done, self._total)
            return Status(
                done=done,
                total=self._total,
                images_per_s=self._pace.add(time.monotonic(), done),
                errors=dict(self._errors),
                workers={
                    index: WorkerStatus(process.state, max(process.finished, process.published))
                    for index, process in self._workers.items()
                },
                waiting_for_pictures=self._mean_share(_STREAMS_WAIT),
                waiting_for_device=self._mean_share(_LOADERS_WAIT) if self._launch.job.config.input != "synthetic" else None,
            )

    def _mean_share(self, stage: str) -> float | None:
        shares = [process.shares[stage] for process in self._workers.values() if stage in process.shares]
        return sum(shares) / len(shares) if shares else None

    def last_status(self, state: str) -> Status:
        """The status at the end of the launch; its workers are gone, and what they had not published is not done."""
        with self._lock:
            for process in self._workers.values():
                process.finished = process.published
                process.state = ENDED if process.state in (STARTING, RUNNING) else process.state
        return replace(self.status(), state=state)
