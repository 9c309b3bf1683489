"""infer_launch --decode: what a user sees of it, and that nothing but pixels of large JPEGs follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests import pictures
from tests.commands import records, run, summary
from tests.forms import long
from tests.models import RECIPE, write_tiny_model

SIZE = (640, 480)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/tiny, and pictures of which `fast` may reduce three."""
    folder = tmp_path_factory.mktemp("place")
    write_tiny_model(folder / "models", batch_sizes=(6,))
    plain = pictures.jpeg(*SIZE)
    files = {
        "plain.jpg": plain,
        "progressive.jpg": pictures.jpeg(*SIZE, progressive=True),
        "turned.jpg": pictures.oriented(pictures.photo(*SIZE), 6),
        "small.jpg": pictures.jpeg(RECIPE.resize_size, 50),
        "other.png": pictures.encode(pictures.photo(*SIZE)),
        "cut.jpg": pictures.cut(plain),
        "tail.jpg": pictures.zero_tail(plain),
        "large.jpg": pictures.jpeg(700, 700),
    }
    pictures.write_files(folder / "photos", files)
    return folder


def launch(place: Path, mode: str, output: Path, *words: object) -> Any:
    words = ("--data_dir", "photos", "--save", "embedding", "--max_pixels", 480_000, "--output", output, *words)
    return run("infer_launch", "--model_name", "tiny", "--device", "cpu", "--decode", mode, *words, cwd=place)


def test_fast_changes_pixels_of_large_jpegs_and_nothing_else(place: Path, tmp_path: Path) -> None:
    found = {}
    for mode in ("exact", "fast"):
        ran = launch(place, mode, tmp_path / mode)
        assert ran.returncode == 3, ran.stderr
        assert f"decode: {mode}" in ran.stdout
        assert summary(place / "logs")["decode"] == mode
        part = next((tmp_path / mode).glob("part-*.parquet"))
        assert json.loads(pq.read_metadata(part).metadata[b"bulkinfer"])["decode"] == mode
        found[mode] = records(tmp_path / mode)
    changed = set()
    for key, exact in found["exact"].items():
        fast = found["fast"][key]
        if exact["status"] == "ok":
            assert np.allclose(fast["embedding"], exact["embedding"], atol=0.02)
            changed |= {key} if fast["embedding"] != exact["embedding"] else set()
        assert {**fast, "embedding": None} == {**exact, "embedding": None}
    assert changed == {"plain.jpg", "progressive.jpg", "turned.jpg"}
    failed = {key: row["error"] for key, row in found["fast"].items() if row["status"] == "error"}
    assert set(failed) == {"cut.jpg", "tail.jpg", "large.jpg"}
    assert failed["large.jpg"] == "too large: 700x700 = 490000 pixels, limit 480000"
    assert (found["fast"]["turned.jpg"]["width"], found["fast"]["turned.jpg"]["height"]) == SIZE[::-1]


@long
def test_a_job_keeps_its_mode(place: Path, tmp_path: Path) -> None:
    assert launch(place, "fast", tmp_path / "out", "--limit", 2).returncode in (0, 3)
    refused = launch(place, "exact", tmp_path / "out", "--limit", 2)
    assert refused.returncode == 2
    assert 'differs in decode ("fast" there, "exact" now)' in refused.stderr


def test_an_unknown_mode_is_answered_with_those_there_are(place: Path, tmp_path: Path) -> None:
    refused = launch(place, "quick", tmp_path / "out")
    assert refused.returncode == 2
    assert "exact" in refused.stderr
    assert "fast" in refused.stderr
