"""The flag file of bulkinfer bench --tune, with the conditions it was tuned for; a launch compares them with its own."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import publishing
from bulkinfer.files.flag_file import END_MARK, FIRST_LINE
from bulkinfer.host.cores import CoreBudget, ThreadPlan
from bulkinfer.host.versions import processor, versions
from bulkinfer.launch.jobs.job import Job
from bulkinfer.runtime.devices import AUTO

log = logging.getLogger("bulkinfer")


def require_place(model_path: str, write_flags: str) -> None:
    """Raises UsageError if the flag file of a tuning could not be written: called before minutes of measuring are spent."""
    if not model_path.isprintable():
        raise UsageError(f"--model_path {model_path}: this name cannot be written into the flag file of --tune")
    if not write_flags:
        return  # it goes into the log folder
    path = Path(write_flags)
    if path.is_dir():
        raise UsageError(f"--write_flags {path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"--write_flags {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--write_flags {path}: the folder {path.parent} may not be written to")


def conditions(job: Job, num_devices: int, budget: CoreBudget) -> str:
    """The conditions that a plan of threads is tuned for, in words.

    A host is identified by its processor and cores, not by its name: containers get a new name each time, and equal machines
    can share a flag file.
    """
    card, config = job.model.card, job.config
    cores = "1 core" if budget.usable == 1 else f"{budget.usable} cores"
    workers = f"{num_devices} worker{'s' if num_devices > 1 else ''}"
    host = f"{workers} on {cores} of {' '.join(processor().split())}"
    return f"{card.name} at batch size {config.batch_size} in {job.choice.precision} on {job.choice.provider}, {host}"


def warn_if_tuned_elsewhere(job: Job, num_devices: int, budget: CoreBudget) -> None:
    """Log one warning if the flags of `job` were tuned under other conditions; they are used all the same."""
    wanted, here = job.config.tuned_for, conditions(job, num_devices, budget)
    if wanted and wanted != here:
        log.warning(f"warning: the flag file was tuned for {wanted}, this is {here}; bulkinfer bench --tune makes one for this")


def write_flag_file(path: Path, job: Job, plan: ThreadPlan, budget: CoreBudget, figures: Sequence[str]) -> None:
    """Publish the flags that give infer_launch `plan`; `figures` are comment lines with what was measured."""
    config, graph = job.config, job.model.sidecar.sha256[:12]
    ran = ", ".join(f"{name} {version}" for name, version in versions().items())
    comments = [
        f"host {platform.node()}, {processor()}, cores: {budget}",
        f"model {job.model.card.name} (graph sha256 {graph}), {job.choice.precision} on {job.choice.provider}",
        f"versions: {ran}",
        *figures,
    ]
    flags = {
        "model_name": config.model_name,
        "model_path": config.model_path,
        "batch_size": config.batch_size,
        "device": job.choice.provider if config.device == AUTO else config.device,
        "precision": job.choice.precision,
        "streams": plan.streams,
        "threads_per_stream": plan.threads_per_stream,
        "num_workers": plan.num_workers,
        "loader_processes": config.loader_processes,
        "decode": config.decode,
        "tuned_for": conditions(job, plan.num_devices, budget),
    }
    for name in ("model_path", "decode", "loader_processes"):
        if getattr(config, name) == getattr(LaunchConfig, name):
            del flags[name]
    first = f"{FIRST_LINE} at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, for infer_launch --flagfile"
    lines = [first, *(f"# {line}" for line in comments), *(f"--{name}={value}" for name, value in flags.items()), END_MARK]
    with publishing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n")
