"""Checkpoints: weights and optimiser as safetensors, the rest as JSON; each a folder that is whole or absent.

<run>/checkpoints/step-<updates done>/ holds weights.safetensors, optimiser.safetensors and state.json; with --ema also the
average of the weights, ema.safetensors. average-<updates done>-<number>-<mode>/, the average of several checkpoints, has no
optimiser and continues no run.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bulkinfer.errors import BulkinferError, DamagedError, RunError, UsageError, advising, first_line, os_error_sentence
from bulkinfer.files.atomic import TEMPORARY_PREFIX, file_sha256, fsync_directory, temporary_owner, temporary_path
from bulkinfer.files.json_file import write_json
from bulkinfer.train.checkpoints.state import AVERAGE_NAME, CHECKPOINT_NAME, OPTIMISER_KEY, read_state
from bulkinfer.train.checkpoints.state import FILE as STATE
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.update.optimisers import own_state

if TYPE_CHECKING:
    from bulkinfer.train.averages.ema import Ema

log = logging.getLogger("bulkinfer")

FOLDER = "checkpoints"
WEIGHTS, OPTIMISER, EMA = "weights.safetensors", "optimiser.safetensors", "ema.safetensors"
_ADVICE = "use another checkpoint"
_UNDOUBTED_BYTES = 1 << 28  # a file of tensors up to this size is read without asking whether its network can fill it
_FILES = {WEIGHTS: 1, OPTIMISER: 4, EMA: 1}  # and the most tensors for each parameter that they hold


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read: tensors by name, and the `state` that was given to save(). Without --ema, `ema` is empty."""

    path: Path
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    state: dict[str, Any]
    ema: dict[str, Tensor] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return int(self.state["step"])

    def weights_file(self, asked: str) -> str:
        """The name of the file with the weights that --weights_of asks for; `auto` is the average, if there is one.

        Raises UsageError if there is none and it is asked for.
        """
        if asked == "ema" and not self.ema:
            raise UsageError(f"--weights_of ema: {self.path} has no average of the weights: leave it out, or train with --ema")
        return EMA if self.ema and asked != "raw" else WEIGHTS

    def tensors(self, file: str) -> dict[str, Tensor]:
        """The tensors of that file."""
        return {WEIGHTS: self.weights, EMA: self.ema}[file]


def name_of(step: int) -> str:
    """The name of the checkpoint after so many updates."""
    return f"step-{step:08d}"


def average_name(step: int, count: int, mode: str) -> str:
    """The name of an average of so many checkpoints, the newest of which is of `step` updates."""
    return f"average-{step:08d}-{count}-{mode}"


def save(
    run: Path,
    network: nn.Module,
    optimiser: tuple[Mapping[str, Tensor], Mapping[str, float]],
    state: dict[str, Any],
    ema: Ema | None = None,
) -> Path:
    """Publish the checkpoint of `state["step"]` updates, with what flatten_optimiser() gives; returns its folder."""
    tensors, numbers = optimiser
    files: dict[str, Mapping[str, Tensor]] = {WEIGHTS: network.state_dict(), OPTIMISER: tensors}
    state = {**state, "optimiser_numbers": numbers}
    if ema is not None:
        files[EMA], state["ema_updates"] = ema.tensors(), ema.updates
    return _publish(run / FOLDER / name_of(state["step"]), files, state)


def save_average(run: Path, name: str, weights: dict[str, Tensor], state: dict[str, Any]) -> Path:
    """Publish an average of checkpoints under this name, with the `state` of the newest of them; returns its folder."""
    left_out = ("ema_updates", "time_to_target_s", "window", "owes_validation")  # of the run that it does not continue
    kept = {key: value for key, value in state.items() if key not in left_out}
    return _publish(run / FOLDER / name, {WEIGHTS: weights}, {**kept, "optimiser_numbers": {}})


def _publish(final: Path, files: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]) -> Path:
    """Write the files with these tensors and state.json to the folder `final`, which appears when it is whole."""
    final.parent.mkdir(exist_ok=True)
    temporary = temporary_path(final)
    try:
        temporary.mkdir()
        for name, content in files.items():
            save_file(_on_cpu(content), temporary / name)
        hashes = {name: file_sha256(temporary / name) for name in files}
        for name in hashes:
            _fsync(temporary / name)
        write_json(temporary / STATE, {**state, "sha256": hashes})
        if final.exists():
            shutil.rmtree(final)  # of the same step: this run was once continued from an earlier checkpoint
        os.rename(temporary, final)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, SafetensorError):  # it wraps the operating system's error
            raise RunError(f"{final} could not be written: {first_line(error)}") from error
        if isinstance(error, OSError) and (error.filename is None or str(error.filename).startswith(str(temporary))):
            error.filename = str(final)  # the name that the user knows
        raise
    fsync_directory(final.parent)
    return final


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _fsync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flatten_optimiser(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The optimiser's state as tensors and as plain numbers, both by "<number of the parameter>.<name>"."""
    tensors, numbers = {}, {}
    for index, entries in optimiser.state_dict()["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            elif value is not None:
                numbers[f"{index}.{name}"] = value
    return tensors, numbers


def restore_optimiser(optimiser: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
    """Load the state of a checkpoint into an optimiser over the same parameters.

    Tensors get the strides of their parameters, which they had before: in 16 bits, torch rounds differently for other strides.
    Raises RunError if the state is not one of these parameters.
    """
    state: dict[int, dict[str, Any]] = {}
    shapes = [parameter.shape for group in optimiser.param_groups for parameter in group["params"]]
    for key, value in {**checkpoint.optimiser, **checkpoint.state["optimiser_numbers"]}.items():
        index, _, name = key.partition(".")
        is_known = OPTIMISER_KEY.fullmatch(key) and int(index) < len(shapes)
        if not is_known or (isinstance(value, Tensor) and value.ndim and value.shape != shapes[int(index)]):
            file = checkpoint.path / OPTIMISER
            raise RunError(f"{file} is damaged ({key[:40]!r} does not fit a parameter of the network): {_ADVICE}")
        state.setdefault(int(index), {})[name] = value
    numbers, groups = itertools.count(), []
    for group in optimiser.param_groups:
        groups.append({**group, "params": [next(numbers) for _ in group["params"]]})
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    for parameter, values in own_state(optimiser).items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def steps_of(run: Path) -> list[Path]:
    """The checkpoints of a run, in the order of updates done."""
    folder = run / FOLDER
    found = [path for path in folder.iterdir() if CHECKPOINT_NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def averages_of(run: Path) -> list[Path]:
    """The averages of checkpoints of a run, in the order of updates."""
    found = [path for path in (run / FOLDER).glob("average-*") if AVERAGE_NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (int(path.name.split("-")[1]), path.name))


def read(path: Path) -> Checkpoint:
    """Read the checkpoint in a folder. Raises RunError if it is damaged, UsageError if there is none."""
    try:
        with advising(_ADVICE):
            state = read_state(path)
            _refuse_oversized(path, state)
            tensors = {name: _tensors(path / name, sha256) for name, sha256 in state["sha256"].items() if name in _FILES}
    except OSError as error:
        raise RunError(f"{path} cannot be read ({os_error_sentence(error)}): {_ADVICE}") from error
    return Checkpoint(path, tensors[WEIGHTS], tensors.get(OPTIMISER, {}), state, tensors.get(EMA, {}))


def _tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    if file_sha256(path) != sha256:
        raise DamagedError(f"{path} is damaged (it is not what was saved)")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged ({first_line(error)})") from error


def _refuse_oversized(path: Path, state: dict[str, Any]) -> None:
    """Raises DamagedError for a file that its network cannot fill, before it is hashed: a sparse one may claim terabytes."""
    for name, factor in _FILES.items():
        size = (path / name).stat().st_size if name in state["sha256"] else 0
        if size <= _UNDOUBTED_BYTES:
            continue
        with torch.random.fork_rng(devices=[]):
            network = build(NetworkOptions(**state["network"]))
        most = factor * sum(4 * max(1, tensor.numel()) for tensor in network.state_dict().values()) + _UNDOUBTED_BYTES
        if size > most:
            raise DamagedError(f"{path / name} is damaged (it has {size:,} bytes, its network needs at most {most:,})")


def newest(run: Path, *, warns: bool = True) -> Checkpoint:
    """The newest checkpoint of a run that loads; with `warns`, logs those that do not. Raises UsageError if there is none."""
    reasons = list[str]()
    for path in reversed(steps_of(run)):
        try:
            return read(path)
        except BulkinferError as error:
            reasons.append(str(error).removesuffix(f": {_ADVICE}"))
            if warns:
                log.warning(f"warning: {reasons[-1]}; looking for an earlier one")
    why = f" ({reasons[0]})" if reasons else ""
    raise UsageError(
        f"{run} holds no checkpoint that can be read{why}: give a run folder below logs/, or one of its checkpoints"
    )


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
