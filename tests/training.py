"""Runs of the trainer on a few small pictures that can be learnt, and what they leave."""

from __future__ import annotations

import csv
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bulkinfer.commands import train
from bulkinfer.train import launch
from bulkinfer.train.options import TrainConfig
from safetensors.torch import load_file

VALID = 360  # that the reader keeps for validation


def write_digits(folder: Path, num_training: int = 40) -> Path:
    """digits.csv as scikit-learn has it: class c has a bright row and column c on noise; returns the folder."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(num_training + VALID):
        greys_HW = random.integers(0, 9, (8, 8))
        label = number % 10
        greys_HW[label % 8, :] = 16
        greys_HW[:, (label * 3) % 8] = 16 if label < 8 else 0
        lines.append(",".join(map(str, [*greys_HW.reshape(-1), label])))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.csv").write_text("\n".join(lines))
    return folder


def config_of(home: Path, **options: Any) -> TrainConfig:
    """Twelve updates of 8 pictures, 5 of them an epoch, at 8 x 8 pixels."""
    if not (home / "data" / "digits.csv").exists():
        write_digits(home / "data")
    words = {"model": "cifar_resnet8", "image_size": 8, "dataset": "digits", "data_dir": str(home / "data"),
             "log_path": str(home / "logs"), "micro_batch_size": 8, "steps": 12, "validation": "none"}  # fmt: skip
    return replace(TrainConfig(), **{**words, **options})


def runs_in(logs: Path) -> list[Path]:
    """The folders of the runs in a folder of logs, without the link to the newest."""
    return sorted(path for path in logs.iterdir() if not path.is_symlink())


@contextmanager
def one_thread() -> Iterator[None]:
    """One core for what runs inside: tiny networks gain nothing from more, and other work on them costs much."""
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {min(before)})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def trained(home: Path, **options: Any) -> Path:
    """The folder of a run with these options."""
    logs = home / "logs"
    before = set(runs_in(logs)) if logs.exists() else set()
    with one_thread():
        assert launch.train(config_of(home, **options)).exit_code == 0
    (folder,) = set(runs_in(logs)) - before
    return folder


def command(*words: object) -> int:
    """The exit code of `bulkinfer train` in this process."""
    with one_thread():
        return train.main([str(word) for word in words])


def cut_back(run: Path, step: int) -> Path:
    """A copy of a run as it was when it died after its checkpoint of `step`: logs are ahead of it."""
    copy = run.with_name(f"{run.name}-cut-{step}")
    shutil.copytree(run, copy)
    for path in (copy / "checkpoints").iterdir():
        if int(path.name.partition("-")[2]) > step:
            shutil.rmtree(path)
    return copy


def checkpoints(run: Path) -> list[str]:
    """Names of a run's checkpoints."""
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def weights(run: Path, name: str = "") -> dict[str, torch.Tensor]:
    """The tensors of a run's checkpoint, by default those of the last one: of network, optimiser and --ema."""
    folder = run / "checkpoints" / (name or checkpoints(run)[-1])
    files = [name for name in ("weights", "optimiser", "ema") if (folder / f"{name}.safetensors").exists()]
    tensors = {name: load_file(folder / f"{name}.safetensors") for name in files}
    others = {f"{name}.{key}": value for name in files[1:] for key, value in tensors[name].items()}
    return {**tensors["weights"], **others}


def assert_same_weights(one: Path, other: Path) -> None:
    """The last checkpoints of two runs have the same bits."""
    assert checkpoints(one)[-1] == checkpoints(other)[-1]
    expected, found = weights(one), weights(other)
    assert expected.keys() == found.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


def table(run: Path, name: str, *columns: str) -> list[list[str]]:
    """Some columns of a CSV file of a run."""
    with (run / name).open(newline="") as file:
        return [[row[column] for column in columns] for row in csv.DictReader(file)]
