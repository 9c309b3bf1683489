"""from_checkpoint.py: a checkpoint as a network for infer_launch; what exists already, or is another's, and its message."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bulkinfer.config import GetModelConfig, LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.from_checkpoint import find
from bulkinfer.export.get_model import make_network
from bulkinfer.files.atomic import file_sha256
from bulkinfer.model.card import read_card, write_card
from bulkinfer.model.graph_checks import network_input, read_golden
from bulkinfer.model.lookup import get_model_command
from bulkinfer.train.network.networks import NetworkOptions, build
from safetensors.torch import load_file

from tests.forms import long
from tests.training import trained


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a few updates and models/net made of it at batch 2."""
    home = tmp_path_factory.mktemp("home")
    config = config_of(home, trained(home))
    assert make_network(config).done == "exported"
    return home


def config_of(home: Path, run: Path | None = None, **options: object) -> GetModelConfig:
    run = run or next((home / "logs").iterdir())
    return GetModelConfig(
        **{"checkpoint": str(run), "name": "net", "model_path": str(home / "models"), "batch_size": 2, **options}  # type: ignore[arg-type]
    )


def test_what_is_there_is_verified_or_widened(home: Path) -> None:
    assert make_network(config_of(home)).done == "verified"
    assert make_network(config_of(home, batch_size=3)).done == "added"
    found = make_network(config_of(home))
    assert os.path.isabs(found.card.weights.origin), "a hint must hold wherever it is typed"
    assert found.card.labels == tuple(map(str, range(10)))


def test_a_batch_size_more_needs_no_run(home: Path) -> None:
    config = GetModelConfig(model_name="net", model_path=str(home / "models"), batch_size=4)
    added = make_network(config)
    assert added.done == "added"
    with pytest.raises(UsageError, match=r"--weights: net was made of /.*step-\d+, which has its own weights"):
        make_network(replace(config, weights="random"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("../net", "a name consists of letters"),
        ("resnet50", "a network of get_model --list"),
        ("timm_x", "or of timm has this name"),
        ("n" * 101, "at most 100 characters"),
    ],
)
def test_names_are_those_of_own_networks(home: Path, name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make_network(config_of(home, name=name))


def test_a_network_of_another_kind_stays(home: Path) -> None:
    path = home / "models" / "net" / "card.json"
    card = read_card(path)
    write_card(path, replace(card, source="onnx"))
    try:
        with pytest.raises(
            UsageError, match=r"holds a network from an ONNX file \(trained on .*\): give this one another --name"
        ):
            make_network(config_of(home, input="float32"))
    finally:
        write_card(path, card)


@long
def test_the_average_of_a_run_is_exported_where_there_is_one(tmp_path: Path) -> None:
    run = trained(tmp_path, ema=0.9, steps=3)
    found = {asked: find(config_of(tmp_path, run, weights_of=asked)) for asked in ("auto", "ema", "raw")}
    assert {asked: network.weights_file for asked, network in found.items()} == {
        "auto": "ema.safetensors", "ema": "ema.safetensors", "raw": "weights.safetensors",
    }  # fmt: skip
    made = make_network(config_of(tmp_path, run))
    assert made.card.weights.sha256 == file_sha256(run / "checkpoints" / "step-00000003" / "ema.safetensors")
    assert found["auto"].differences(made.card) == []
    assert len(found["raw"].differences(made.card)) == 1
    golden = read_golden(tmp_path / "models" / "net" / "golden.npz")
    network = build(NetworkOptions("cifar_resnet8", 10))
    network.load_state_dict(load_file(run / "checkpoints" / "step-00000003" / "ema.safetensors"))
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(network_input(golden.images_NHWC, made.card.recipe)))
    assert np.allclose(golden.outputs["logits"], expected, atol=1e-5)


@long
def test_a_damaged_one_is_made_of_its_run_again(home: Path) -> None:
    folder = home / "models" / "net"
    card = read_card(folder / "card.json")
    weights = folder / card.external_data
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    launch = LaunchConfig(model_name="net", model_path=str(home / "models"), batch_size=2)
    told = get_model_command(launch, folder, folder)
    assert told == f"get_model --checkpoint {card.weights.origin} --name net --batch_size 2 --model_path {home / 'models'}"
    with pytest.raises(RunError, match=rf"run {re.escape(told)}$"):
        make_network(GetModelConfig(model_name="net", model_path=str(home / "models"), batch_size=2))
    assert make_network(config_of(home)).done == "exported"
    assert weights.read_bytes() == whole


def test_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no checkpoint that can be read: give a run folder"):
        make_network(GetModelConfig(checkpoint=str(tmp_path), model_path=str(tmp_path / "models")))
    assert not (tmp_path / "models").exists()
