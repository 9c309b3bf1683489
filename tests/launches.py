"""A launch on a tiny network and a few solid pictures, as far as the command gets before it starts an engine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.job import Job, Launch, describe_job, make_job
from bulkinfer.launch.launcher import open_job, write_run
from bulkinfer.model.lookup import find_model
from bulkinfer.records.manifest import Dataset
from bulkinfer.results.job_file import write_job
from bulkinfer.runtime.devices import find_candidates, parse_device
from bulkinfer.types import Step
from bulkinfer.worker.protocol import RunSpec
from PIL import Image

from tests import pictures
from tests.models import COLOURS, LABELS, write_tiny_model


def write_photos(folder: Path, count: int) -> Path:
    """Pictures 000-black.png, 001-red.png and so on: each named by its class."""
    colours = [LABELS[number % 8] for number in range(count)]
    files = {
        f"{n:03d}-{name}.png": pictures.encode(Image.new("RGB", (40, 40), COLOURS[name])) for n, name in enumerate(colours)
    }
    pictures.write_files(folder, files)
    return folder


def plan_of(workers: int = 1) -> ThreadPlan:
    """One thread for everything, all cores for everybody."""
    return ThreadPlan(workers, 1, 1, 1, (tuple(sorted(os.sched_getaffinity(0))),) * workers, (0,) * workers)


def config_of(folder: Path, *, photos: int = 10, input: str = "uint8", **changes: Any) -> LaunchConfig:
    """The config of a job on `photos` pictures in batches of 4; its network and pictures are made in `folder`."""
    write_tiny_model(folder / "models", batch_sizes=(4,), input=input)
    if not changes.get("synthetic") and not changes.get("generated"):
        changes = {"data_dir": str(write_photos(folder / "photos", photos)), "output": str(folder / "out"), **changes}
    places = {"model_path": str(folder / "models"), "log_path": str(folder / "logs")}
    return LaunchConfig(**{"batch_size": 4, "model_name": "tiny", "device": "cpu", "precision": "fp32", **places, **changes})


def bind(config: LaunchConfig, dataset: Dataset | None) -> Job:
    """The job of a config on the first device that could serve it, in fp32 where that is left open: nothing is measured."""
    request = parse_device(config.device, config.precision)
    choice = find_candidates(request).choices[0]
    if choice.precision == "auto":
        choice = replace(choice, precision="fp32")
    return make_job(config, find_model(config, [choice.provider]), request, choice, dataset)


def launch_of(folder: Path, **options: Any) -> Launch:
    """The launch of config_of(folder, **options), its directories made and nothing done yet."""
    config = config_of(folder, **options)
    job, _ = open_job(config)
    log_dir = Path(config.log_path) / job.name
    log_dir.mkdir(parents=True)
    if config.input != "pictures":
        return Launch(job, plan_of(), log_dir, None, {}, [], ())
    output = Path(config.output)
    output.mkdir()
    description = describe_job(job, {})
    write_job(output, description)
    return Launch(job, plan_of(), log_dir, output, description, [Step(0, 0, job.num_records)], ())


def spec_of(launch: Launch) -> RunSpec:
    """What its workers are told."""
    return RunSpec.read(write_run(launch))
