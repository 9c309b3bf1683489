"""The side of the launch that an engine calls: makes the steps, counts what workers report, shows lines."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.host.number_text import rate_text
from bulkinfer.host.screen import Screen
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.totals import Aggregate
from bulkinfer.launch.step_queue import batches_per_step, steps_without_pictures
from bulkinfer.results.output_store import output_store
from bulkinfer.results.part_names import part_name
from bulkinfer.runtime.session import describe_proof
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Died, Event, Ready, StepDone

log = logging.getLogger("bulkinfer")

_FIRST_STEP = 2  # batches of each stream, while the rate is not known: the first one warms up, the second one is measured


class Reporter:
    """The hooks of one launch; see engines.Hooks."""

    def __init__(self, launch: Launch, aggregate: Aggregate, progress: Progress, screen: Screen) -> None:
        self._launch, self._aggregate, self._progress, self._screen = launch, aggregate, progress, screen
        self._failures_before = launch.job_file.count_rows().errors if launch.job_file is not None else 0
        self._batches_per_step = 0
        self._is_length_known = False
        self._num_workers = launch.threads.num_devices

    def make_steps(self, rate: float, num_workers: int) -> list[Step]:
        """What is to do. The first steps are short where the length of the others is to follow from them."""
        config, threads, self._num_workers = self._launch.job.config, self._launch.threads, num_workers
        if config.input != "pictures":
            batches = self._length_by(rate)
            steps = steps_without_pictures(config, num_workers, batches)
            self._progress.expect(sum(map(len, steps)))
            measured = "" if config.batches_per_step else f"warm-up: {rate_text(rate)} on the first worker; "
            self._settle(batches, f"{measured}{batches} batches x {config.batch_size} pictures a step, {len(steps)} steps")
            return steps
        longest, first = self._length_by(math.inf), _FIRST_STEP * threads.streams
        if config.batches_per_step or longest <= first:
            self._settle(longest, self._describe(longest))
        else:
            self._batches_per_step = first
        return self._launch.todo

    def most_records(self) -> int:
        """The length of a step that is handed out now."""
        return self._batches_per_step * self._launch.job.config.batch_size

    def _length_by(self, rate: float) -> int:
        launch = self._launch
        return batches_per_step(launch.job.config, self._num_workers, launch.todo, rate, launch.job.row_bytes)

    def _describe(self, batches: int) -> str:
        size = self._launch.job.config.batch_size
        steps = sum(math.ceil(len(gap) / (batches * size)) for gap in self._launch.todo)
        return f"{batches} batches x {size} pictures a step, {steps} steps"

    def _settle(self, batches: int, line: str) -> None:
        """Take the length of steps, show it, and record it in _job.json."""
        launch, self._batches_per_step, self._is_length_known = self._launch, batches, True
        self._screen.line(line)
        if launch.output is not None and launch.job_file is not None:
            launch.job_file.resolve(batches_per_step=batches)
            launch.job_file.write(launch.output)

    def _measure(self, event: StepDone) -> None:
        """The first step with pictures after the warm-up gives the length of the steps that follow."""
        pictures, is_whole = event.count - event.warm_up, event.count == len(event.step)
        if self._is_length_known or not pictures or not is_whole:
            return
        rate = pictures / max(event.total_s, 1e-9)
        batches = self._length_by(rate)
        self._settle(batches, f"first batches: {rate_text(rate)} on one worker; from now on {self._describe(batches)}")

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        """Count and show an event; returns the error that ends the launch, if it must end."""
        self._aggregate.add(worker, event)
        self._progress.add(worker, event)
        if isinstance(event, Ready):
            self._screen.log(f"worker {worker}: {describe_proof(event.proof)}")
        elif isinstance(event, Died):
            then = "a new one takes over" if event.by_another else "it is not started again; the others go on without it"
            log.warning(f"worker {worker} {event.how}; {then}")
        elif isinstance(event, StepDone):
            self._measure(event)
            if (line := self._aggregate.next_line(busy_workers)) is not None:
                self._screen.line(line)
            return self._too_many_failures()
        return None

    def _too_many_failures(self) -> RunError | None:
        limit = self._launch.job.config.max_failures
        failures = self._failures_before + self._aggregate.failures
        if not limit or failures <= limit:
            return None
        return RunError(f"{failures} pictures failed, more than --max_failures {limit}: see {self._launch.output}")

    def on_progress(self, worker: int, pictures: int) -> None:
        """Count what a worker has done of its steps so far."""
        self._progress.finished(worker, pictures)

    def must_stop(self) -> BulkinferError | None:
        """The error that ends the launch: one of its locks was lost."""
        return next((lease.refusal for lease in self._launch.leases if lease.refusal), None)

    def is_published(self, step: Step) -> bool:
        """True if the part of `step` is published."""
        output = self._launch.output
        return output is not None and output_store(output).has(part_name(step))
