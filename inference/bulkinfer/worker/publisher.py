"""Publishes finished rows: as a part, with a line in the log and a report to the launcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bulkinfer.errors import RunError
from bulkinfer.files.addresses import place_path
from bulkinfer.host.console import step_line
from bulkinfer.host.usage import cpu_seconds, peak_memory_bytes
from bulkinfer.results.output_locks import check_lock
from bulkinfer.results.parquet_parts import Part, write_part
from bulkinfer.results.rows import StepRows
from bulkinfer.types import Batch, Step, printable_path
from bulkinfer.worker.metrics import Meter, Metrics
from bulkinfer.worker.pipeline import Tally
from bulkinfer.worker.protocol import Event, RunSpec, StepDone, Totals


class Rows(Protocol):
    """Collects the batches of one step."""

    step: Step

    def fill(self, batch: Batch, outputs: Any) -> bool: ...

    def finished_prefix(self) -> int: ...


class Publisher:
    """Makes the rows of each step, and publishes them when they are complete; after a stop, those that are finished.

    `report` gets each event, `say` each line of the text log. With `output` None (synthetic) steps are only counted.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        batch_size: int,
        metadata: dict[str, Any],
        meter: Meter,
        report: Callable[[Event], None],
        say: Callable[[str], None],
        loader_pids: Sequence[int] = (),
    ) -> None:
        self._spec, self._batch_size, self._metadata = spec, batch_size, metadata
        self._meter, self._report, self._say, self._loader_pids = meter, report, say, loader_pids
        self._open: dict[Step, Rows] = {}
        self._last_line = time.perf_counter()
        self._last_metrics = meter.snapshot()
        self._warm_up_published = 0

    def new_rows(self, step: Step) -> Rows:
        """The object that collects the batches of `step`."""
        rows: Rows = Tally(step) if self._spec.output is None else StepRows(step, self._spec.task, self._batch_size)
        self._open[step] = rows
        return rows

    def publish(self, rows: Rows) -> None:
        """Publish a complete step. Raises RunError if the launcher has lost its lock to another one, or the output is gone."""
        self._publish(rows, len(rows.step))

    def publish_unfinished(self) -> None:
        """After a stop: publish the finished records at the start of each open step."""
        for rows in list(self._open.values()):
            if count := rows.finished_prefix():
                self._publish(rows, count)

    def _publish(self, rows: Rows, count: int) -> None:
        del self._open[rows.step]
        ok, stages, sha256 = count, dict[str, int](), ""
        if isinstance(rows, StepRows):
            part = self._write(rows, count)
            ok, stages, sha256 = part.num_ok, part.stages, part.sha256
        warm_up = self._of_warm_up(count)
        total_s, wait_s, compute_s = self._since_last_line()
        self._report(StepDone(rows.step, count, ok, stages, sha256, total_s, wait_s, compute_s, self.totals(), warm_up))
        if warm_up:
            self._say(f"warm-up: {warm_up} pictures")
        if warm_up < count:
            self._say(step_line(total_s, wait_s, compute_s, count - warm_up))

    def _write(self, rows: StepRows, count: int) -> Part:
        """Publish rows as a part. Raises RunError if the results folder is gone, which a user may have removed."""
        assert self._spec.output is not None, "what has rows has an output"
        output = place_path(self._spec.output)
        try:
            return write_part(output, rows, count, self._metadata, before_rename=self._check_locks)
        except FileNotFoundError:
            if output.is_dir():
                raise
            raise RunError(
                f"{printable_path(output)} was removed or renamed while the job ran: run the same command again, which begins "
                "the job from the start"
            ) from None

    def _check_locks(self) -> None:
        """Raise RunError if another launcher has taken over. The worker checks, since its own launcher may be suspended."""
        for path, token in self._spec.locks.items():
            check_lock(path, token)

    def _of_warm_up(self, count: int) -> int:
        """How many of the next `count` pictures to publish had their rows by the end of the warm-up."""
        warm_up = self._meter.warm_up
        found = count if warm_up is None else min(count, max(0, warm_up.pictures - self._warm_up_published))
        self._warm_up_published += found
        return found

    def _since_last_line(self) -> tuple[float, float, float]:
        """Seconds since the last line, or since the end of the warm-up if that came later.

        They are: in all, waiting for batches, inside the network (the last two as means of streams).
        """
        warm_up = self._meter.warm_up
        if warm_up is not None and warm_up.end > self._last_line:
            self._last_line, self._last_metrics = warm_up.end, warm_up.metrics
        now, metrics, before = time.perf_counter(), self._meter.snapshot(), self._last_metrics
        total_s = now - self._last_line
        self._last_line, self._last_metrics = now, metrics
        streams = self._spec.session.streams
        wait_s, compute_s = (_grown(before, metrics, stage) / streams for stage in ("wait_for_batch", "infer"))
        return total_s, wait_s, compute_s

    def totals(self) -> Totals:
        """What this process and its loader processes have used so far."""
        pids = self._loader_pids
        return Totals(self._meter.snapshot().as_json(), peak_memory_bytes(pids), cpu_seconds(pids))


def _grown(before: Metrics, now: Metrics, stage: str) -> float:
    return float(now.seconds[stage] - before.seconds[stage])
