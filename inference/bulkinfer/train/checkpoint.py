"""Checkpoints: weights and optimiser as safetensors, the rest as JSON; each a folder that is whole or absent.

<run>/checkpoints/step-<updates done>/ holds weights.safetensors, optimiser.safetensors and state.json.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bulkinfer.errors import BulkinferError, RunError, UsageError, advising, first_line
from bulkinfer.files.atomic import TEMPORARY_PREFIX, file_sha256, fsync_directory, temporary_owner, temporary_path
from bulkinfer.files.json_file import read_json, write_json

log = logging.getLogger("bulkinfer")

FOLDER = "checkpoints"
WEIGHTS, OPTIMISER, STATE = "weights.safetensors", "optimiser.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{8,})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read: tensors by name, and the `state` that was given to save()."""

    path: Path
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])


def name_of(step: int) -> str:
    """The name of the checkpoint after so many updates."""
    return f"step-{step:08d}"


def save(run: Path, network: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> Path:
    """Publish the checkpoint of `state["step"]` updates; returns its folder."""
    final = run / FOLDER / name_of(state["step"])
    final.parent.mkdir(exist_ok=True)
    temporary = temporary_path(final)
    temporary.mkdir()
    try:
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
        save_file(weights, temporary / WEIGHTS)
        tensors, numbers = _flatten(optimiser)
        save_file(tensors, temporary / OPTIMISER)
        hashes = {name: file_sha256(temporary / name) for name in (WEIGHTS, OPTIMISER)}
        for name in hashes:
            _fsync(temporary / name)
        write_json(temporary / STATE, {**state, "optimiser_numbers": numbers, "sha256": hashes})
        if final.exists():
            shutil.rmtree(final)  # of the same step: this run was once continued from an earlier checkpoint
        os.rename(temporary, final)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, SafetensorError):  # it wraps the operating system's error
            raise RunError(f"{final} could not be written: {first_line(error)}") from error
        raise
    fsync_directory(final.parent)
    return final


def _fsync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _flatten(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The optimiser's state as tensors and as plain numbers, both by "<number of the parameter>.<name>"."""
    tensors, numbers = {}, {}
    for index, entries in optimiser.state_dict()["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value.detach().cpu().contiguous()
            elif value is not None:
                numbers[f"{index}.{name}"] = value
    return tensors, numbers


def restore_optimiser(optimiser: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
    """Load the state of a checkpoint into an optimiser over the same parameters.

    Tensors get the strides of their parameters, which they had before: in 16 bits, torch rounds differently for other strides.
    """
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**checkpoint.optimiser, **checkpoint.state["optimiser_numbers"]}.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    for parameter, values in optimiser.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def steps_of(run: Path) -> list[Path]:
    """The checkpoints of a run, in the order of updates done."""
    folder = run / FOLDER
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def read(path: Path) -> Checkpoint:
    """Read the checkpoint in a folder. Raises RunError if it is damaged, UsageError if there is none."""
    with advising("use another checkpoint"):
        state = read_json(path / STATE)
    tensors = []
    for name in (WEIGHTS, OPTIMISER):
        try:
            if file_sha256(path / name) != state["sha256"][name]:
                raise RunError(f"{path / name} is damaged (it is not what was saved): use another checkpoint")
            tensors.append(load_file(path / name))
        except (OSError, SafetensorError, KeyError) as error:
            raise RunError(f"{path / name} is damaged ({first_line(error)}): use another checkpoint") from error
    return Checkpoint(path, tensors[0], tensors[1], state)


def newest(run: Path, *, warns: bool = True) -> Checkpoint:
    """The newest checkpoint of a run that loads; with `warns`, logs those that do not. Raises UsageError if there is none."""
    for path in reversed(steps_of(run)):
        try:
            return read(path)
        except BulkinferError as error:
            if warns:
                log.warning(f"warning: {error}; looking for an earlier one")
    raise UsageError(f"{run} holds no checkpoint that can be read: give a run folder below logs/, or one of its checkpoints")


def clean(run: Path, step: int) -> None:
    """Prepare a run to go on from `step`: rename later checkpoints, which cannot be read, and remove half-written ones."""
    for path in steps_of(run):
        if int(path.name.partition("-")[2]) > step:
            aside = path.with_name(f"broken-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    for path in (run / FOLDER).glob(f"{TEMPORARY_PREFIX}*"):
        owner = temporary_owner(path.name)
        if owner is not None and owner.is_gone:
            shutil.rmtree(path, ignore_errors=True)


def find(path: Path, *, warns: bool = True) -> Checkpoint:
    """The checkpoint at a path, which is its folder, a file in it, or a run (its newest)."""
    path = Path(os.path.abspath(path))  # the run is two folders above the checkpoint, also if the path is relative
    if path.is_file():
        path = path.parent
    if (path / STATE).exists():
        return read(path)
    return newest(path, warns=warns)


def prune(run: Path, *, keep_last: int, best_step: int) -> None:
    """Remove all but the newest `keep_last` checkpoints and the best one; 0 keeps all."""
    if not keep_last:
        return
    for path in steps_of(run)[:-keep_last]:
        if int(path.name.partition("-")[2]) != best_step:
            shutil.rmtree(path)
