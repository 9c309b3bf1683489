"""A launch on a tiny network and a few solid pictures, as far as the command gets before it starts an engine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.auto.choose import find_network
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.jobs.job import Job, count_records, identity_of, new_job_file
from bulkinfer.launch.plan import open_network, open_pictures
from bulkinfer.launch.run import write_run
from bulkinfer.records.dataset import Dataset
from bulkinfer.results.log_folder import LAUNCH_FILE
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
    asked = find_network(config)
    choice = asked.candidates.choices[0]
    if choice.precision == "auto":
        choice = replace(choice, precision="fp32")
    return Job(config, asked.model, choice, dataset, count_records(dataset, config.limit), identity_of(asked, dataset))


def job_of(config: LaunchConfig) -> Job:
    """The job of a config on its own pictures, as `bind` makes it."""
    return bind(config, open_pictures(open_network(config), None) if config.input == "pictures" else None)


def launch_of(folder: Path, **options: Any) -> Launch:
    """The launch of config_of(folder, **options), its directories made and nothing done yet."""
    config = config_of(folder, **options)
    job = job_of(config)
    log_dir = Path(config.log_path) / job.name
    log_dir.mkdir(parents=True)
    if config.input != "pictures":
        return Launch(job, plan_of(), log_dir, None, None, [], ())
    output = Path(config.output)
    output.mkdir()
    job_file = new_job_file(job)
    job_file.write(output)
    return Launch(job, plan_of(), log_dir, output, job_file, [Step(0, 0, job.num_records)], ())


def as_an_earlier_version(log_dir: Path | None) -> Path:
    """The log folder under the name that earlier versions gave, and without launch.json."""
    assert log_dir is not None
    old = log_dir.with_name(log_dir.name.rpartition("-")[0])
    (log_dir / LAUNCH_FILE).unlink()
    for path in (log_dir / "run.json", log_dir / "summary.json"):
        record = read_json(path)
        write_json(path, record | {"output": record["output"].replace(log_dir.name, old.name)})
    return log_dir.rename(old)


def spec_of(launch: Launch) -> RunSpec:
    """What its workers are told."""
    return RunSpec.read(write_run(launch))
