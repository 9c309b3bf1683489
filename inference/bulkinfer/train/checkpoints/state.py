"""state.json of a checkpoint: what it holds, and the check that it does, before anything in it is used."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NotRequired, TypedDict, get_type_hints

from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.json_file import read_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.model.recipe import Recipe
from bulkinfer.train.network.networks import NetworkOptions, check_options
from bulkinfer.train.options import TrainConfig
from bulkinfer.types import printable

FILE = "state.json"
CHECKPOINT_NAME = re.compile(r"step-(\d{8,})", re.ASCII)
AVERAGE_NAME = re.compile(r"average-(\d{8,})-\d+-\w+", re.ASCII)
OPTIMISER_KEY = re.compile(r"\d{1,9}\.\w+", re.ASCII)  # <number of the parameter>.<name>
# Options of one start of a run: they do not hold when it is continued.
OF_THE_FIRST_START = (
    "resume", "config", "config_path", "like", "init_checkpoint", "keep_run", "dry_run", "log_path", "name_suffix",
    "check_pictures", "profile",
)  # fmt: skip
_MOST_STEPS, _MOST_NUMBER = 10**12, 1e300
_MOST_SIDE = 1 << 14  # pixels
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Hashes = TypedDict(
    "_Hashes", {"weights.safetensors": str, "optimiser.safetensors": NotRequired[str], "ema.safetensors": NotRequired[str]}
)


class _LossScale(TypedDict):
    value: float
    good_steps: int


class _Best(TypedDict):
    step: int
    accuracy: float


class _Average(TypedDict):
    mode: str
    decay: float
    of: list[str]


class _Newer(TypedDict, total=False):
    window: list[float]
    owes_validation: bool
    ema_updates: int
    time_to_target_s: float
    average: _Average


class State(_Newer):
    """All of a checkpoint but its tensors.

    `config` has the fields of a TrainConfig, `network` those of a NetworkOptions, `recipe` those of a Recipe. `step` counts
    updates. `optimiser_numbers` is by "<number of the parameter>.<name>". `window` and `owes_validation` are those of
    Progress; earlier versions did not save them. `ema_updates` is there with --ema: the updates that the average has followed.
    `time_to_target_s` is there if a validation has reached --target_accuracy. `average` says how an average of checkpoints was
    made, and of which; its tensors have no optimiser.
    """

    config: dict[str, Any]
    network: dict[str, Any]
    dataset: str
    num_samples: int
    global_batch: int
    class_names: list[str]
    recipe: dict[str, Any]
    versions: dict[str, str]
    step: int
    epoch: float
    loss_scale: _LossScale
    best: _Best
    total_s: float
    optimiser_numbers: dict[str, float]
    sha256: _Hashes


def read_state(folder: Path) -> dict[str, Any]:
    """The content of state.json in the folder of a checkpoint.

    Raises UsageError if there is none or it is of a newer version, DamagedError if it is damaged or its content cannot be that
    of a checkpoint.
    """
    path = folder / FILE
    if not path.exists():
        raise UsageError(f"{path} does not exist: use another checkpoint")
    state = read_json(path)
    check_state(state, path)
    return state


def check_state(state: dict[str, Any], path: Path) -> None:
    """Raises DamagedError that names the file if the content of `path` cannot be that of the checkpoint in its folder."""
    if reason := next(_faults(state, path.parent.name), ""):
        raise DamagedError(f"{path} is damaged ({reason})")
    try:
        TrainConfig(**options_of_state(state))
        check_options(NetworkOptions(**state["network"]))
        recipe = Recipe(**state["recipe"])
        if max(recipe.height, recipe.width, recipe.resize_size) > _MOST_SIDE:
            raise UsageError(f"recipe: a side of a picture is more than {_MOST_SIDE} pixels")
    except UsageError as error:
        raise DamagedError(f"{path} cannot be used ({error})") from None


def options_of_state(state: dict[str, Any]) -> dict[str, Any]:
    """The options of a run in the state of a checkpoint, with tuples for lists."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**state["config"], **_of_earlier_versions(state["config"])}.items()
        if name not in OF_THE_FIRST_START
    }


def _of_earlier_versions(config: dict[str, Any]) -> dict[str, Any]:
    """Options that earlier versions saved and took in another way, as they acted there; none for a run of this version."""
    found: dict[str, Any] = {}
    if not config.get("lr") and not config.get("base_learning_rate"):
        found["lr"] = 0.1  # of every optimiser
    if config.get("model_size") and config.get("model") == "cifar_resnet20":  # the default, where the size named the network
        found["model"] = ""
    if config.get("loss_scaling_mode") == "ramp" and 2 <= config.get("loss_scaling", 0) <= 2**24:
        found["loss_scaling"] = 2.0 ** math.floor(math.log2(config["loss_scaling"]))
    return found


def _faults(state: dict[str, Any], folder_name: str) -> Iterator[str]:
    """What is wrong with the structure of a state; nothing if it can be used."""
    yield from filter(None, [mismatch(state, State)])
    yield from (f"{name[:40]} is unknown to this version" for name in state if name not in get_type_hints(State))
    for kind, where in ((TrainConfig, "config"), (NetworkOptions, "network"), (Recipe, "recipe")):
        yield from _wrong_fields(state[where], kind, where)
    name = CHECKPOINT_NAME.fullmatch(folder_name) or AVERAGE_NAME.fullmatch(folder_name)
    if not 1 <= state["step"] <= _MOST_STEPS or (name and int(name[1]) != state["step"]):
        yield f"step is {state['step']}, in the folder {printable(os.fsencode(folder_name))}"
    if state["network"]["num_classes"] != len(state["class_names"]) or not state["class_names"]:
        yield f"{len(state['class_names'])} class_names for {state['network']['num_classes']} classes of the network"
    if min(state["num_samples"], state["global_batch"]) < 1:
        yield f"num_samples is {state['num_samples']} and global_batch {state['global_batch']}"
    numbers = {"epoch": state["epoch"], "total_s": state["total_s"], **state["loss_scale"]}
    numbers["time_to_target_s"] = state.get("time_to_target_s", 0.0)
    yield from (f"{name} is {number}" for name, number in numbers.items() if not 0 <= number <= _MOST_STEPS)
    if not 0 <= state.get("ema_updates", 0) <= state["step"]:
        yield f"ema_updates is {state['ema_updates']} of {state['step']} updates"
    if ("ema_updates" in state) != ("ema.safetensors" in state["sha256"]):
        yield "it has one of ema_updates and sha256.ema.safetensors, not both"
    if ("average" in state) == ("optimiser.safetensors" in state["sha256"]):
        yield "it has both or none of average and sha256.optimiser.safetensors"
    if not (-1 <= state["best"]["accuracy"] <= 1 and -1 <= state["best"]["step"] <= state["step"]):
        yield f"best is {state['best']}"
    yield from (f"sha256.{name} is no sha256" for name, text in state["sha256"].items() if not _SHA256.fullmatch(text))
    window = state.get("window", [])
    if len(window) not in (0, 4) or not all(-_MOST_NUMBER <= number <= _MOST_NUMBER for number in window):
        yield f"window is {str(window)[:40]}"
    for name, number in state["optimiser_numbers"].items():
        if not (OPTIMISER_KEY.fullmatch(name) and -_MOST_NUMBER <= number <= _MOST_NUMBER):
            yield f"optimiser_numbers.{name[:40]} is {str(number)[:40]}"


def _wrong_fields(value: dict[str, Any], kind: Any, where: str) -> Iterator[str]:
    """The fields of `value` that the dataclass `kind` does not have, those of another type, and those that are missing."""
    kinds = get_type_hints(kind)
    yield from (f"{where}.{name[:40]} is unknown to this version" for name in value if name not in kinds)
    yield from filter(None, (mismatch(value[name], kinds[name], f"{where}.{name}") for name in value))
    required = [known.name for known in fields(kind) if known.default is MISSING]
    yield from (f"{where}.{name} is missing" for name in required if name not in value)
