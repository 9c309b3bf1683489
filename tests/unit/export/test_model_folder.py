"""models/<name>/ on disk: batch sizes added, damage noticed, exports replaced, kills survived, foreign files kept."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import model_folder
from bulkinfer.export.torch_export import export_network
from bulkinfer.model import batch_graph
from bulkinfer.model import integrity as model_damage
from bulkinfer.model.card import read_card
from bulkinfer.model.graph_file import Export

from tests.logged import logged
from tests.networks import HALVES, Convolutions, card_of, published, run


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder that tests may read, not change."""
    return published(Convolutions(), tmp_path_factory.mktemp("models") / "net")


@pytest.fixture(scope="module")
def other_export() -> Export:
    """The same network with other weights."""
    network = Convolutions()
    network.layers[3].weight.data += 1
    return export_network(network.eval(), HALVES, "uint8")


def copy_of(folder: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "models" / "net"
    copy.mkdir(parents=True)
    for entry in folder.iterdir():
        (copy / entry.name).write_bytes(entry.read_bytes())
    return copy


def test_another_batch_size_is_added_from_the_folder_alone(convolutions: Path, tmp_path: Path) -> None:
    folder = copy_of(convolutions, tmp_path)
    before = {entry.name for entry in folder.iterdir()}
    sidecar = batch_graph.add_batch_size(folder, read_card(folder / "card.json"), 16)
    assert {entry.name for entry in folder.iterdir()} - before == {"model_16.onnx", "model_16.json"}
    assert sidecar.inputs == {"images": [16, 8, 8, 3]}
    images = np.random.default_rng(1).integers(0, 256, (16, 8, 8, 3), np.uint8)
    free, fixed = run(folder / "model.onnx", images), run(folder / "model_16.onnx", images)
    assert np.array_equal(free["logits"], fixed["logits"])


def test_an_export_removes_the_graph_cache_of_the_one_before(convolutions: Path, other_export: Export, tmp_path: Path) -> None:
    folder = copy_of(convolutions, tmp_path)
    (folder / "graph_cache" / "0123456789abcdef").mkdir(parents=True)
    (folder / "graph_cache" / "0123456789abcdef" / "weights.bin").write_bytes(b"old")
    model_folder.publish(folder, card_of(other_export, HALVES), other_export, 6)
    assert not (folder / "graph_cache").exists()
    assert model_damage.damage(folder, read_card(folder / "card.json")) == ""


@pytest.mark.parametrize("name", ["model.onnx", "model.json", "golden.npz", "weights"])
@pytest.mark.parametrize("harm", ["missing", "half", "empty"])
def test_damage_to_shared_files_is_noticed(name: str, harm: str, convolutions: Path, tmp_path: Path) -> None:
    folder = copy_of(convolutions, tmp_path)
    card = read_card(folder / "card.json")
    assert model_damage.damage(folder, card) == ""
    path = folder / (card.external_data if name == "weights" else name)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if harm == "half" else b"")
    if harm == "missing":
        path.unlink()
    assert path.name in model_damage.damage(folder, card)


def test_damage_to_one_fixed_graph_is_noticed(convolutions: Path, tmp_path: Path) -> None:
    folder = copy_of(convolutions, tmp_path)
    assert batch_graph.has_batch_size(folder, 6)
    assert not batch_graph.has_batch_size(folder, 7)
    (folder / "model_6.onnx").write_bytes(b"other")
    assert not batch_graph.has_batch_size(folder, 6)
    (folder / "model_6.json").unlink()
    assert not batch_graph.has_batch_size(folder, 6)


def test_a_new_export_replaces_the_old_and_names_the_graphs_it_took_away(
    convolutions: Path, other_export: Export, tmp_path: Path
) -> None:
    folder = copy_of(convolutions, tmp_path)
    old = read_card(folder / "card.json")
    batch_graph.add_batch_size(folder, old, 16)
    (folder / "notes.txt").write_text("mine")
    export = other_export
    assert model_folder.publish(folder, card_of(export, HALVES), export, 6) == ["model_16.onnx"]
    names = {entry.name for entry in folder.iterdir()}
    assert old.external_data not in names
    assert {"notes.txt", "model_6.onnx", "card.json", export.weights_file} <= names
    assert model_damage.damage(folder, read_card(folder / "card.json")) == ""


def test_an_export_that_fails_its_checks_leaves_the_old_one_whole(convolutions: Path, tmp_path: Path) -> None:
    folder = copy_of(convolutions, tmp_path)
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    network = Convolutions()
    network.layers[3].weight.data += 1
    export = export_network(network.eval(), HALVES, "uint8")
    export.golden.outputs["logits"][0, 0] += 100
    with pytest.raises(RunError, match="differs from the source network"):
        model_folder.publish(folder, card_of(export, HALVES), export, 6)
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before


@pytest.mark.parametrize("point", range(1, 19))
def test_a_kill_at_any_write_leaves_the_old_state_or_one_that_is_made_anew(
    point: int, convolutions: Path, other_export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(convolutions, tmp_path)
    export = other_export
    card = card_of(export, HALVES)
    calls = 0

    class KilledError(BaseException):
        pass

    def dies(function: Any) -> Any:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == point:
                raise KilledError
            return function(*arguments, **keywords)

        return counted

    with monkeypatch.context() as patched:
        for name in ("rename", "unlink"):  # all publishing ends in one of these
            patched.setattr(os, name, dies(getattr(os, name)))
        try:
            model_folder.publish(folder, card, export, 6)
        except KilledError:
            assert calls >= point  # the way out takes temporaries away
        else:
            assert calls < point
    found = model_folder.existing_card(folder)
    if found is None:  # made anew
        model_folder.publish(folder, card, export, 6)
        found = read_card(folder / "card.json")
    assert model_damage.damage(folder, found) == ""
    assert batch_graph.has_batch_size(folder, 6)


def test_a_damaged_card_is_said_and_the_folder_made_anew(convolutions: Path, tmp_path: Path) -> None:
    folder, said = copy_of(convolutions, tmp_path), []
    (folder / "card.json").write_text("{")
    assert logged(said, model_folder.existing_card, folder) is None
    assert "card.json is damaged" in said[0]


def test_a_graph_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    with model_folder.locked_folder(str(tmp_path), "net") as folder:
        pass
    (folder / "model.onnx").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"model\.onnx was not made by get_model"):
        model_folder.existing_card(folder)


def test_a_linked_folder_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net").symlink_to(tmp_path / "store")
    with model_folder.locked_folder(str(tmp_path / "models"), "net") as folder:
        pass
    assert folder == tmp_path / "store"
    published(Convolutions(), folder)
    assert (tmp_path / "models" / "net" / "card.json").exists()


def test_c60_a_refusal_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for parents, is_left in (("models", True), ("other/models", False)):
        with pytest.raises(ZeroDivisionError), model_folder.locked_folder(str(tmp_path / parents), "net"):
            raise ZeroDivisionError
        assert (tmp_path / parents).exists() == is_left
        assert not (tmp_path / parents / "net").exists()
    (tmp_path / "models" / "net").mkdir()
    with pytest.raises(ZeroDivisionError), model_folder.locked_folder(str(tmp_path / "models"), "net"):
        raise ZeroDivisionError
    assert (tmp_path / "models" / "net").exists(), "it was there before"
    with pytest.raises(FileExistsError):
        refused_with_notes(tmp_path / "models")
    assert (tmp_path / "models" / "full" / "notes").exists()


def refused_with_notes(models: Path) -> None:
    with model_folder.locked_folder(str(models), "full") as folder:
        (folder / "notes").mkdir()
        (folder / "notes").mkdir()


def test_c60_who_waits_for_a_folder_that_a_refusal_removes_makes_it_again(tmp_path: Path) -> None:
    results: list[Path] = []

    def second() -> None:
        with model_folder.locked_folder(str(tmp_path), "net") as folder:
            results.append(folder)
            (folder / "card.json").write_text("{}")

    def first() -> None:
        with model_folder.locked_folder(str(tmp_path), "net"):
            thread.start()
            thread.join(0.3)  # it waits for the lock by now
            raise ZeroDivisionError

    thread = threading.Thread(target=second)
    with pytest.raises(ZeroDivisionError):
        first()
    thread.join(60)
    assert (results[0] / "card.json").exists()
