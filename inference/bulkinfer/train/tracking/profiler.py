"""`bulkinfer train --profile N`: where the time of N updates goes, by torch.profiler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from torch.profiler import ProfilerActivity, profile, record_function

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import publishing
from bulkinfer.train.runs import Log
from bulkinfer.train.training import Training

TRACE, TABLE = "trace.json", "profile.txt"
_FIRST = 3  # updates of a start that are not profiled: they compile, choose kernels and fill caches
_ROWS = 20  # of the table

Update = TypeVar("Update")


def check_profile(training: Training) -> None:
    """Raises UsageError if no update is left to profile."""
    config, left = training.plan.config, training.plan.epochs.total_steps - training.progress.done
    if config.profile and left <= _FIRST:
        raise UsageError(
            f"--profile {config.profile}: it begins after {_FIRST} updates, and {left} are left: give more --steps"
        )


def profiled(updates: Iterator[Update], training: Training, run: Log) -> Iterator[Update]:
    """Give the updates, and profile the `--profile` ones that follow the first three, on the first replica.

    trace.json, in Chrome's format, and a table of the operations that took longest go into the run's folder. What the run does
    between these updates is in them as well.
    """
    config, progress = training.plan.config, training.progress
    if config.profile and training.plan.world.is_first:
        yield from islice(updates, _FIRST)
        first = progress.done + 1
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its lines of progress would stand between those of the run
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if training.data.device.type == "cuda" else [])]
        with profile(activities=activities) as found:
            yield from islice(_marked(updates), config.profile)
        sort_by = f"self_{'cpu' if training.data.device.type == 'cpu' else 'device'}_time_total"
        _write(found.key_averages().table(sort_by=sort_by, row_limit=_ROWS), found, run)
        run.say(f"profile: updates {first} to {progress.done}: {run.folder / TRACE} for ui.perfetto.dev, {run.folder / TABLE}")
    yield from updates


def _marked(updates: Iterator[Update]) -> Iterator[Update]:
    """Give the updates, each of which has a mark in the trace."""
    while True:
        with record_function("update"):
            update = next(updates, None)
        if update is None:
            return
        yield update


def _write(table: str, found: profile, run: Log) -> None:
    with publishing(run.folder / TRACE) as path:
        found.export_chrome_trace(str(path))
    with publishing(run.folder / TABLE) as path:
        path.write_text(table)
