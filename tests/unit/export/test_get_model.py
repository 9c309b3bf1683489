"""get_model.py: the function of the public API, and what all sources of a network share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer import zoo
from bulkinfer.commands import get_model as command
from bulkinfer.config import GetModelConfig, LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import from_checkpoint, from_zoo
from bulkinfer.export.get_model import get_model, make_model, make_network
from bulkinfer.host.console import PlainHandler
from bulkinfer.model import batch_memory
from bulkinfer.model.card import check_graph_files, read_card, write_card
from bulkinfer.model.lookup import find_model
from bulkinfer.zoo.spec import NetworkSpec

from tests.foreign_graphs import deep_graph, recipe_file, save
from tests.forms import long
from tests.logged import logged
from tests.networks import HALVES, Convolutions


@pytest.fixture
def silent() -> Iterator[None]:
    """Without the handler that a command installs."""
    log = logging.getLogger("bulkinfer")
    installed = [handler for handler in log.handlers if isinstance(handler, PlainHandler)]
    for handler in installed:
        log.removeHandler(handler)
    yield
    for handler in installed:
        log.addHandler(handler)


def adopted(folder: Path, **options: Any) -> dict[str, Any]:
    """Options that adopt a small graph as models/net."""
    given = {"onnx": save(deep_graph(), folder), "recipe": recipe_file(folder), "name": "net", "model_path": folder / "models"}
    return {"scores": "logits", **given, **options}


def test_a_network_and_another_batch_size_of_it(tmp_path: Path, silent: None, capsys: pytest.CaptureFixture[str]) -> None:
    first = get_model(**adopted(tmp_path))
    assert (first.name, first.folder, first.done) == ("net", tmp_path / "models" / "net", "exported")
    assert (first.graph, first.card) == (first.folder / "model_6.onnx", read_card(first.folder / "card.json"))
    assert first.seconds > 0
    second = get_model("net", batch_size=3, model_path=tmp_path / "models")
    assert (second.graph.name, second.sidecar.batch_size, second.done) == ("model_3.onnx", 3, "added")
    assert get_model("net", batch_size=3, model_path=str(tmp_path / "models")).done == "verified"
    with pytest.raises(FrozenInstanceError):
        second.done = "exported"  # type: ignore[misc]
    assert capsys.readouterr() == ("", "")


def test_a_variant_follows_its_network(tmp_path: Path) -> None:
    said: list[str] = []
    made = logged(said, lambda: get_model(precision="fp16", **adopted(tmp_path)))
    assert (made.name, made.folder, made.card.precision) == ("net", tmp_path / "models" / "net" / "fp16", "fp16")
    assert any(line.startswith(f"fp32: {tmp_path / 'models' / 'net'}, exported in ") for line in said)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch_size": 0}, "^batch_size is 0: it must be at least 1$"),
        ({"precision": "fp8"}, "^precision is 'fp8': legal are fp32, fp16, int8$"),
        ({"model_name": "nothing_like_it"}, "no network is called 'nothing_like_it'"),
        ({"list": True}, "which only the command does: get_model --list"),
        ({"calibration_dir": "photos"}, "--calibration_dir belongs to --precision"),
    ],
)
def test_values_that_are_refused(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        get_model(**{"model_path": tmp_path, **options})
    assert not list(tmp_path.iterdir())


def test_options_that_do_not_exist() -> None:
    with pytest.raises(TypeError, match="batchsize"):
        get_model("efficientnet_lite0", batchsize=6)


@pytest.mark.parametrize(("name", "error"), [("timm", RunError), ("bulkinfer.gone", ModuleNotFoundError)])
def test_a_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]) -> None:
    """A module of ours is no package that could be installed."""

    def find(config: GetModelConfig) -> from_zoo.ZooNetwork:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(from_zoo, "find", find)
    with pytest.raises(error, match=name):
        make_network(GetModelConfig(model_path=str(tmp_path)))


def test_a_damaged_card_says_what_to_do(tmp_path: Path) -> None:
    folder = get_model(**adopted(tmp_path)).folder
    (folder / "model_6.json").write_text("{")
    (folder / "model_6.onnx").unlink()
    (folder / "card.json").write_text("{")
    with pytest.raises(UsageError, match=r"card\.json is damaged .*: make net again from what it was made of: get_model --"):
        get_model("net", model_path=tmp_path / "models")


class Trained:
    """A checkpoint that cannot be exported: nothing here comes to that."""

    name, kind, card, instead, recipe = "net", "checkpoint", None, "", HALVES

    def differences(self, existing: object) -> list[str]:
        return ["its weights are others"]

    def export(self) -> Any:
        raise AssertionError("minutes of work for a variant that is refused")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_checkpoint_is_not_exported_for_a_variant_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if is_there:
        folder = get_model(**adopted(tmp_path)).folder
        write_card(folder / "card.json", replace(read_card(folder / "card.json"), source="checkpoint"))
    monkeypatch.setattr(from_checkpoint, "find", lambda config: Trained())
    told = r"would be exported again \(its weights are others\)" if is_there else r"net/int8 does not exist"
    with pytest.raises(UsageError, match=rf"{told}.*--calibration_dir PHOTOS"):
        make_model(GetModelConfig(checkpoint="logs/run", model_path=str(tmp_path / "models"), precision="int8"))


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the network comes from: an ONNX file, its folder, a training run, the zoo."""
    made = get_model(**adopted(tmp_path)).folder
    before = sorted(path.name for path in made.iterdir())
    adopts = {name: str(value) for name, value in adopted(tmp_path, name="other").items()}
    models = str(made.parent)
    patched_zoo(monkeypatch)
    monkeypatch.setattr(from_checkpoint, "find", lambda config: Trained())
    monkeypatch.setattr(batch_memory, "usable_memory", lambda: 1 << 20)
    for options in (adopts, {"model_name": "net"}, {"checkpoint": "logs/run"}, {"model_name": "timm:small"}):
        with pytest.raises(UsageError, match=r"--batch_size 1000000: .* memory: give \d+ or fewer$"):
            make_network(GetModelConfig(**{**options, "model_path": models}, batch_size=1_000_000))
    assert [path.name for path in made.parent.iterdir()] == ["net"]
    assert sorted(path.name for path in made.iterdir()) == before


def patched_zoo(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    """timm:small is a tiny network with these facts."""
    recipe = replace(HALVES, resize_size=9)
    spec = NetworkSpec("m:f", "small", recipe, "", 0, "none", "tests", "small.pth", **facts)
    monkeypatch.setattr(zoo, "find", lambda _: ("timm_small", spec))
    monkeypatch.setattr(zoo, "build", lambda _: Convolutions().eval())


@long
def test_c47_a_network_without_classes_becomes_a_folder_of_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model_name", "timm:small", "--weights", "random", "--model_path", str(tmp_path), "--batch_size", "2"]
    patched_zoo(monkeypatch)
    assert command.main(words) == 0, "an earlier version took the embedding for classes"
    patched_zoo(monkeypatch, has_classes=False)
    assert command.main(words) == 0
    printed = capsys.readouterr().out
    assert "exporting again: it has classes, this network gives an embedding" in printed
    path = f"--model_path {tmp_path}"
    assert f"next: infer_launch --model_name timm_small --batch_size 2 {path} --save embedding --synthetic" in printed
    card, _, _ = check_graph_files(tmp_path / "timm_small", 2)
    assert (card.outputs, card.labels, card.classified) == ({"embedding": "embedding"}, (), "")
    config = LaunchConfig(model_name="timm_small", model_path=str(tmp_path), batch_size=2)
    with pytest.raises(UsageError, match="--save topk: timm_small has only embedding, none"):
        find_model(config, ["cpu"])
    assert find_model(replace(config, save=("embedding",)), ["cpu"]).card == card
    assert command.main(words) == 0
    assert "model_2.onnx is already there" in capsys.readouterr().out


@long
def test_c47_the_test_size_is_a_recipe_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"model_path": str(tmp_path), "weights": "random", "batch_size": 2}
    patched_zoo(monkeypatch)
    with pytest.raises(UsageError, match="--use_test_size: timm_small is tested at the size at which it was trained: leave"):
        get_model("timm:small", use_test_size=True, **options)
    patched_zoo(monkeypatch, test_recipe=replace(HALVES, resize_size=12))
    made = get_model("timm:small", use_test_size=True, **options)
    assert (made.card.recipe.resize_size, made.card.test_size) == (12, True)
    assert get_model("timm:small", use_test_size=True, **options).done == "verified"
    assert get_model("timm:small", **options).card.recipe.resize_size == 9
    for wrong in ({"onnx": "m.onnx", "name": "net", "recipe": "r"}, {"checkpoint": "run"}):
        with pytest.raises(UsageError, match="--use_test_size belongs to networks of timm"):
            GetModelConfig(use_test_size=True, **wrong)
    get_model(**adopted(tmp_path))
    with pytest.raises(UsageError, match="--use_test_size belongs to networks of timm: net was adopted"):
        get_model("net", model_path=str(tmp_path / "models"), use_test_size=True)


@long
@pytest.mark.parametrize("name", ["vit_xsmall_patch16_clip_224.tinyclip_yfcc15m", "vit_small_patch16_dinov3.lvd1689m"])
def test_c47_networks_of_timm_that_describe_pictures(name: str, tmp_path: Path) -> None:
    made = get_model(f"timm:{name}", model_path=str(tmp_path), weights="random", batch_size=2)
    assert made.card.outputs == {"embedding": "embedding"}
    assert made.sidecar.outputs["embedding"][1] in (384, 512)
