"""in_store.py: a network that is made in the cache is published in a store, its card last."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.config import GetModelConfig, LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.in_store import make_in_store
from bulkinfer.export.model_folder import ModelFolder, finished
from bulkinfer.model.card import read_card, write_card
from bulkinfer.model.lookup import find_model

from tests.memory_store import MemoryStore, put_in_place
from tests.models import write_tiny_model

MODELS = "s3://bucket/models"
WEIGHTS = "weights-0123456789abcdef.bin"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    return put_in_place(monkeypatch, tmp_path / "cache")


def made(config: GetModelConfig, source: str = "first") -> ModelFolder:
    """In place of an export: a tiny network whose files have the names that get_model gives."""
    folder = write_tiny_model(Path(config.model_path), batch_sizes=(0, config.batch_size), weights=source)
    (folder / "weights.bin").rename(folder / WEIGHTS)
    (folder / "notes.txt").write_text("of the user")
    write_card(folder / "card.json", replace(read_card(folder / "card.json"), external_data=WEIGHTS))
    return finished(folder, read_card(folder / "card.json"), config.batch_size, "exported", 0.0)


def publish(source: str = "first", batch_size: int = 6) -> ModelFolder:
    config = GetModelConfig(model_name="tiny", model_path=MODELS, batch_size=batch_size)
    return make_in_store(config, MODELS, lambda local: made(local, source))


def changes(store: MemoryStore) -> list[str]:
    """What was put and deleted, in order, since the last call."""
    found = [request for request in store.requests if request.startswith(("put", "delete"))]
    store.requests.clear()
    return found


def test_the_card_is_put_last_and_a_launch_finds_the_network(store: MemoryStore) -> None:
    publish()
    names = [request.rpartition("/")[2] for request in changes(store)]
    assert names == ["model.onnx", "model_6.onnx", WEIGHTS, "model.json", "model_6.json", "card.json"]
    assert "models/tiny/notes.txt" not in store.objects
    config = LaunchConfig(model_path=MODELS, model_name="tiny", batch_size=6)
    assert find_model(config, ("cpu",)).card.weights.source == "first"


def test_a_further_batch_size_is_added_also_from_another_host(store: MemoryStore, tmp_path: Path) -> None:
    publish()
    shutil.rmtree(tmp_path / "cache")
    changes(store)
    folder = publish(batch_size=8).folder
    assert changes(store) == ["put models/tiny/model_8.onnx", "put models/tiny/model_8.json"]
    assert (folder / "model_6.onnx").is_file()  # of the other host
    publish(batch_size=8)
    assert changes(store) == []


def test_a_network_that_is_replaced_loses_its_card_first(store: MemoryStore) -> None:
    publish()
    store.objects["models/tiny/model_9.onnx"] = b"of the export that is replaced"
    changes(store)
    publish("second")
    done = changes(store)
    assert (done[0], done[-1]) == ("delete models/tiny/card.json", "put models/tiny/card.json")
    assert f"put models/tiny/{WEIGHTS}" not in done  # the same, by its name


def test_what_another_get_model_publishes_meanwhile_stays(store: MemoryStore) -> None:
    def publish_too(request: str) -> None:
        if request == "put models/tiny/model_6.json":
            store.objects["models/tiny/card.json"] = b"of the other"

    store.on_request = publish_too
    with pytest.raises(RunError, match=f"{MODELS}: another get_model publishes this network: run get_model again"):
        publish()
    assert store.objects["models/tiny/card.json"] == b"of the other"


def test_nothing_is_made_for_a_web_server(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match="--model_path https://host/models: a web server cannot be written to"):
        make_in_store(GetModelConfig(), "https://host/models", made)


def test_a_command_in_a_message_names_the_store(store: MemoryStore) -> None:
    def refuse(config: GetModelConfig) -> ModelFolder:
        raise UsageError(f"run get_model --model_path {config.model_path}")

    with pytest.raises(UsageError, match=f"run get_model --model_path {MODELS}$"):
        make_in_store(GetModelConfig(), MODELS, refuse)
