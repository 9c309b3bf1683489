"""state.py: a state.json that is not what was saved is named, never used, and never stops the fall back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.commands import get_model, validate
from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.train.checkpoints import checkpoint, state

from tests.sealed import edited
from tests.training import assert_same_weights, checkpoints, command, cut_back, one_thread, trained

WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "sha256 is a list": lambda state: state.update(sha256=[1]),
    "sha256 holds numbers": lambda state: state["sha256"].update({"weights.safetensors": 1}),
    "step is text": lambda state: state.update(step="x"),
    "step is true": lambda state: state.update(step=True),
    "step of another folder": lambda state: state.update(step=9),
    "step below 1": lambda state: state.update(step=-8),
    "no step": lambda state: state.pop("step"),
    "1e12 classes": lambda state: state["network"].update(num_classes=1e12),
    "10**12 classes": lambda state: state["network"].update(num_classes=10**12),
    "one name for ten classes": lambda state: state.update(class_names=["cat"]),
    "class names are numbers": lambda state: state.update(class_names=list(range(10))),
    "unknown key": lambda state: state.update(colour="red"),
    "unknown option": lambda state: state["config"].update(colour="red"),
    "unknown option of the network": lambda state: state["network"].update(colour="red"),
    "unknown rule of the recipe": lambda state: state["recipe"].update(colour="red"),
    "a network that does not exist": lambda state: state["network"].update(model="resnet"),
    "a network of a million blocks": lambda state: state["network"].update(depth_factor=1e9),
    "an option of another kind": lambda state: state["config"].update(steps="x"),
    "an option out of range": lambda state: state["config"].update(momentum=2.0),
    "an option that is not a number": lambda state: state["config"].update(lr=float("nan")),
    "a recipe of two channels": lambda state: state["recipe"].update(mean=[0, 0]),
    "a recipe without a height": lambda state: state["recipe"].pop("height"),
    "a picture of a terabyte": lambda state: state["recipe"].update(height=10**6, width=10**6),
    "numbers of no parameter": lambda state: state.update(optimiser_numbers={"x.step": 1}),
    "the best is a number": lambda state: state.update(best=1),
    "a loss scale of text": lambda state: state["loss_scale"].update(value="x"),
    "negative seconds": lambda state: state.update(total_s=float("-inf")),
    "an average without its file": lambda state: state.update(ema_updates=3),
    "a file of an average without its count": lambda state: state["sha256"].update({"ema.safetensors": "0" * 64}),
    "an average of text": lambda state: state.update(average="mean"),
    "an average with an optimiser": lambda state: state.update(average={"mode": "mean", "decay": 0.9, "of": []}),
    "no optimiser": lambda state: state["sha256"].pop("optimiser.safetensors"),
    "no pictures": lambda state: state.update(num_samples=0),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight updates with its checkpoints."""
    home = tmp_path_factory.mktemp("run")
    return trained(home, checkpoints_per_epoch=5, keep_last=0, steps=8)


@pytest.mark.parametrize("what", WRONG)
def test_c49_a_wrong_state_is_named_and_an_older_checkpoint_taken(
    what: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "run"
    shutil.copytree(run, cut)
    broken = cut / "checkpoints" / "step-00000008" / "state.json"
    edited(broken, WRONG[what])
    capsys.readouterr()
    assert checkpoint.find(cut).step == 7
    told = capsys.readouterr().err
    assert str(broken.parent) in told
    assert "looking for an earlier one" in told
    with pytest.raises(RunError, match=str(broken.parent)):
        checkpoint.read(broken.parent)


def test_c49_every_command_says_which_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "run"
    shutil.copytree(run, cut)
    for path in (cut / "checkpoints").glob("step-0000000[1-6]"):
        shutil.rmtree(path)
    broken = cut / "checkpoints" / "step-00000008"
    edited(broken / "state.json", WRONG["1e12 classes"])
    capsys.readouterr()
    sentence = f"{broken}/state.json is damaged (network.num_classes is 1000000000000.0, not int)"
    assert command("--resume", broken) == 1
    assert sentence in capsys.readouterr().err
    with one_thread():
        assert validate.main([str(cut)]) == 1
        told = capsys.readouterr()
        assert sentence in told.err
        assert "damaged and not validated: step-00000008" in told.err
        assert "step-00000007: top-1 " in told.out, "the others are validated"
        assert get_model.main(["--checkpoint", str(broken), "--model_path", str(tmp_path)]) == 1
    assert sentence in capsys.readouterr().err
    assert command("--resume", cut) == 0
    assert "broken-step-00000008" in checkpoints(cut)


def test_c49_weights_that_do_not_fit_the_network(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = cut_back(run, 8)
    path = cut / "checkpoints" / "step-00000008" / "state.json"
    edited(path, lambda value: value["network"].update(norm="group"))
    with one_thread():
        assert validate.main([str(path.parent)]) == 1
    assert "its weights do not fit its network" in capsys.readouterr().err


def test_c29_one_flipped_bit_is_refused(run: Path, tmp_path: Path) -> None:
    """At 60 places of state.json: never another seed, rate, class name or hash."""
    cut = tmp_path / "step-00000008"
    shutil.copytree(run / "checkpoints" / cut.name, cut)
    content = (cut / "state.json").read_bytes()
    random = np.random.default_rng(0)
    expected = checkpoint.read(cut).state
    for place in random.integers(0, len(content), 60):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(0, 8))
        (cut / "state.json").write_bytes(flipped)
        try:
            assert state.read_state(cut) == expected, "a blank between two values"
        except BulkinferError as error:
            assert str(cut / "state.json") in str(error)  # noqa: PT017 (which of the two it is depends on the place)


def test_c49_a_run_of_the_first_format_goes_on(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As commit f6aa8a8 wrote it: without checksum and what has been added since."""
    cut = tmp_path / "run"
    shutil.copytree(run, cut)
    shutil.rmtree(cut / "checkpoints" / "step-00000008")
    for path in cut.glob("checkpoints/*/state.json"):
        content = json.loads(path.read_text())
        for name in ("checksum", "window", "owes_validation"):
            content.pop(name)
        for name in ("check_pictures", "on_bad_picture"):
            content["config"].pop(name)
        path.write_text(json.dumps({**content, "format": 1}))
    assert command("--resume", cut) == 0
    assert_same_weights(run, cut)
    assert "changed" not in capsys.readouterr().out


def test_options_of_earlier_versions_are_read_as_they_acted() -> None:
    """They had one rate for all optimisers, a default network that --model_size replaced, and ramps that ended early."""

    def read(**options: Any) -> dict[str, Any]:
        found = state.options_of_state({"config": options})
        return {name: value for name, value in found.items() if options.get(name) != value}

    assert read(optimizer="adam", lr=0.0, base_learning_rate="") == {"lr": 0.1}
    assert read(optimizer="adam", lr=0.0, base_learning_rate="-6") == {}
    assert read(lr=0.5, model="cifar_resnet20", model_size="50") == {"model": ""}
    assert read(lr=0.5, model="cifar_resnet20", model_size="") == {}
    assert read(lr=0.5, loss_scaling_mode="ramp", loss_scaling=100.0) == {"loss_scaling": 64.0}
    assert read(lr=0.5, loss_scaling_mode="dynamic", loss_scaling=100.0) == {}
