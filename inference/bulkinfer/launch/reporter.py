"""The side of the launch that an engine calls: makes the steps, counts what workers report, shows lines."""

from __future__ import annotations

import logging

from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.host.progress_bar import Screen
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.step_queue import plan_steps
from bulkinfer.launch.totals import Aggregate
from bulkinfer.results.part_names import part_name
from bulkinfer.runtime.session import describe_proof
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Died, Event, Ready, Recovered, StepDone

log = logging.getLogger("bulkinfer")


class Reporter:
    """The hooks of one launch; see engines.Hooks."""

    def __init__(self, launch: Launch, aggregate: Aggregate, screen: Screen) -> None:
        self._launch, self._aggregate, self._screen = launch, aggregate, screen
        self._failures_before = launch.job_file.count_rows().errors if launch.job_file is not None else 0

    def make_steps(self, rate: float) -> list[Step]:
        """Cut what is to do into steps, and record their length in _job.json."""
        launch, config = self._launch, self._launch.job.config
        batches, steps = plan_steps(config, launch.threads.num_devices, launch.todo, rate, launch.job.row_bytes)
        measured = "" if config.batches_per_step else f"warm-up: {rate:.1f} images/sec on the first worker; "
        self._screen.line(f"{measured}{batches} batches x {config.batch_size} pictures a step, {len(steps)} steps")
        if launch.output is not None and launch.job_file is not None:
            launch.job_file.resolve(batches_per_step=batches)
            launch.job_file.write(launch.output)
        return steps

    def on_event(self, worker: int, event: Event, busy_workers: list[int]) -> BulkinferError | None:
        """Count and show an event; returns the error that ends the launch, if it must end."""
        self._aggregate.add(worker, event)
        if isinstance(event, Ready):
            self._screen.log(f"worker {worker}: {describe_proof(event.proof)}", worker=worker)
        elif isinstance(event, Died):
            then = "a new one takes over" if event.by_another else "it does not start; the others go on without it"
            log.warning(f"{self._launch.job.command}: worker {worker} {event.how}; {then}")
        elif isinstance(event, Recovered):
            self._screen.advance(len(event.step))
        elif isinstance(event, StepDone):
            self._screen.advance(event.count)
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

    def must_stop(self) -> BulkinferError | None:
        """The error that ends the launch: one of its locks was lost."""
        return next((lease.refusal for lease in self._launch.leases if lease.refusal), None)

    def is_published(self, step: Step) -> bool:
        """True if the part of `step` is published."""
        output = self._launch.output
        return output is not None and (output / part_name(step)).exists()
