"""next_words.py: the folder and the network that the next command names."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands.next_words import known_pictures, launch_words
from bulkinfer.model.card import read_card, write_card

from tests.models import write_tiny_model


def test_pictures_that_a_launch_would_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    assert known_pictures() == ""
    monkeypatch.setenv("DATA_DIR", "elsewhere")
    assert known_pictures() == "elsewhere"
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "dataset.json").touch()
    assert known_pictures() == "datasets"


def test_the_network_of_the_next_launch(tmp_path: Path) -> None:
    models = str(tmp_path / "models")
    assert launch_words("parts", models) == ["bulkinfer", "run", "--data_dir", "parts"]
    for age, name in ((100, "older"), (0, "newer")):
        card = write_tiny_model(tmp_path / "models", name) / "card.json"
        os.utime(card, (card.stat().st_mtime - age,) * 2)
    assert launch_words("parts", models) == ["infer_launch", "--data_dir", "parts", "--model_name", "newer"]
    card = tmp_path / "models" / "newer" / "card.json"
    write_card(card, replace(read_card(card), fixed_batch=4))
    assert launch_words("parts", models)[-2:] == ["--batch_size", "4"]
    write_tiny_model(tmp_path / "models", "resnext101_32x4d")
    assert launch_words("parts", models) == ["infer_launch", "--data_dir", "parts"]
