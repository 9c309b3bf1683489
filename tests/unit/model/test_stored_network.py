"""stored_network.py: a network of a store is fetched once, checked by its hashes, and kept by its content."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import StoreError, UsageError
from bulkinfer.model.card import check_graph_files
from bulkinfer.model.lookup import Model, find_model
from bulkinfer.model.stored_network import fetch_folder, read_stored_card, stored_names
from bulkinfer.types import explained

from tests.memory_store import MemoryStore, put_in_place
from tests.models import write_tiny_model

MODELS = "s3://bucket/models"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    found = put_in_place(monkeypatch, tmp_path / "cache")
    found.put_folder(write_tiny_model(tmp_path / "made", batch_sizes=(0, 6)).parent, "models")
    return found


def found(name: str = "tiny", models: str = MODELS, providers: tuple[str, ...] = ("cpu",), **changes: Any) -> Model:
    return find_model(LaunchConfig(model_path=models, model_name=name, **changes), providers)


def refusal(**changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        found(**changes)
    assert "/cache/" not in str(caught.value)  # where the user did not put anything
    return str(caught.value)


def test_a_network_is_fetched_once(store: MemoryStore, tmp_path: Path) -> None:
    first = found()
    assert first.graph.is_relative_to((tmp_path / "cache" / "bulkinfer" / "models").resolve())
    assert first.graph.read_bytes() == store.objects["models/tiny/model_6.onnx"]
    assert "get models/tiny/model.onnx" not in store.requests  # it has a graph of this batch size
    store.requests.clear()
    assert found() == found(models=f"{MODELS}/") == first
    assert store.requests == ["get models/tiny/card.json"] * 2


def test_another_spelling_and_the_nearest_names(store: MemoryStore) -> None:
    assert found("Ti-NY") == found()
    assert refusal(name="tinx").endswith(f"nearest of what {MODELS} holds: tiny")
    assert stored_names(MODELS) == ["tiny"]
    assert refusal(name="efficientnet_lite0").startswith(f"{MODELS}/efficientnet_lite0/card.json does not exist: ")
    with pytest.raises(UsageError, match="is no name of a network"):
        found("..")


def test_a_batch_size_that_is_not_published_is_made_in_the_cache(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    monkeypatch.setattr("bulkinfer.model.lookup.ask", lambda _module, question, _about: asked.append(question) or "no")
    command = f"get_model --model_name tiny --batch_size 8 --model_path {MODELS}"
    assert refusal(batch_size=8).endswith(f"model_8.onnx does not exist, and making it failed (no): run {command}")
    (question,) = asked
    assert Path(question["network"], "model.onnx").read_bytes() == store.objects["models/tiny/model.onnx"]


def test_a_network_that_is_published_again_gets_another_folder(store: MemoryStore, tmp_path: Path) -> None:
    before = found()
    store.put_folder(write_tiny_model(tmp_path / "made", weights="newer").parent, "models")
    after = found()
    assert before.graph.exists()
    assert before.graph.parent != after.graph.parent
    assert after.card.weights.source == "newer"


@pytest.mark.parametrize("name", ["weights.bin", "model_6.onnx"])
def test_a_file_that_is_damaged_in_the_store_is_refused_and_the_next_try_takes_the_sound_one(
    store: MemoryStore, tmp_path: Path, name: str
) -> None:
    sound = store.objects[f"models/tiny/{name}"]
    store.objects[f"models/tiny/{name}"] = sound[:-1] + b"x"
    assert refusal().startswith(f"--model_path: {MODELS}/tiny/{name} is not what its record says (sha256 ")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name == name or path.name.startswith("_tmp-")]
    store.objects[f"models/tiny/{name}"] = sound
    assert found().card.name == "tiny"


@pytest.mark.parametrize("name", ["card.json", "model_6.json"])
def test_a_record_that_is_damaged_in_the_store_is_refused(store: MemoryStore, name: str) -> None:
    sound = store.objects[f"models/tiny/{name}"]
    store.objects[f"models/tiny/{name}"] = sound.replace(b"tiny" if name == "card.json" else b"images", b"x")
    assert f"{MODELS}/tiny/{name} is damaged" in refusal()
    store.objects[f"models/tiny/{name}"] = sound
    assert found().card.name == "tiny"


@pytest.mark.parametrize("name", ["weights.bin", "model_6.onnx", "model_6.json"])
def test_what_is_damaged_in_the_cache_is_fetched_again(store: MemoryStore, name: str, caplog: pytest.LogCaptureFixture) -> None:
    sound = found()
    path = sound.graph.parent / name
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"\0\0\0")
    with caplog.at_level(logging.WARNING):
        assert found() == sound
    assert path.read_bytes() == content
    assert "is damaged, and is fetched again" in caplog.text


def test_a_missing_file_is_named_by_its_address(store: MemoryStore) -> None:
    del store.objects["models/tiny/weights.bin"]
    said = refusal()
    assert f"{MODELS}/tiny/weights.bin, the weights of {MODELS}/tiny/model_6.onnx, do not exist" in said
    assert said.endswith(f"run get_model --model_name tiny --batch_size 6 --model_path {MODELS}")


def test_of_a_variant_only_its_own_files_are_fetched(store: MemoryStore, tmp_path: Path) -> None:
    command = f"get_model --model_name tiny --batch_size 6 --model_path {MODELS} --precision int8 --calibration_dir PHOTOS"
    assert refusal(precision="int8").endswith(f"{MODELS}/tiny/int8/card.json does not exist: run {explained(command)}")
    store.put_folder(write_tiny_model(tmp_path / "made" / "tiny", "int8").parent, "models/tiny")
    store.requests.clear()
    int8 = found(precision="int8")
    assert int8.graph.parent.name == "int8"
    assert "get models/tiny/weights.bin" not in store.requests
    assert found().graph.parent.name == "tiny"


def test_a_store_that_cannot_be_used_ends_the_command(store: MemoryStore) -> None:
    def refuse(_request: str) -> None:
        raise StoreError("the credentials have expired")

    store.on_request = refuse
    with pytest.raises(StoreError):
        found()


def test_a_node_of_a_cluster_gets_it_where_the_launcher_has_it(store: MemoryStore, tmp_path: Path) -> None:
    model = found()
    assert model.address == f"{MODELS}/tiny"
    there = tmp_path / "of the node" / "tiny"
    fetch_folder(model.address, there, 6)
    assert (there / "model_6.onnx").read_bytes() == model.graph.read_bytes()
    assert check_graph_files(there, 6)[1] == model.sidecar
    with pytest.raises(UsageError, match=f"run get_model --model_name tiny --batch_size 9 --model_path {MODELS}"):
        fetch_folder(model.address, there, 9)
    with pytest.raises(UsageError, match=f"{MODELS}/none/card.json does not exist"):
        fetch_folder(f"{MODELS}/none", there, 6)


def test_the_card_alone(store: MemoryStore) -> None:
    card = read_stored_card(MODELS, "tiny")
    assert card is not None
    assert card.name == "tiny"
    assert read_stored_card(MODELS, "none") is None
    store.objects["models/tiny/card.json"] = b"{"
    assert read_stored_card(MODELS, "tiny") is None


def test_a_cache_that_cannot_be_written_to(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot be written to .*: name another folder for caches with XDG_CACHE_HOME"):
        found()
