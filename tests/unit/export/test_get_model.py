"""get_model.py: the function of the public API, and what all sources of a network share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import from_checkpoint, from_zoo
from bulkinfer.export.get_model import get_model, make_model, make_network
from bulkinfer.host.console import PlainHandler
from bulkinfer.model.card import read_card, write_card

from tests.foreign_graphs import deep_graph, recipe_file, save
from tests.logged import logged


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
    with pytest.raises(UsageError, match="no network is called 'net'"):
        get_model("net", model_path=tmp_path / "models")


class Trained:
    """A checkpoint that cannot be exported: nothing here comes to that."""

    name, kind, card, instead = "net", "checkpoint", None, ""

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
    with pytest.raises(UsageError, match=rf"{told}.*--calibration_dir PICTURES"):
        make_model(GetModelConfig(checkpoint="logs/run", model_path=str(tmp_path / "models"), precision="int8"))
