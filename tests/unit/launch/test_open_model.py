"""open_model.py: the decisions of a launch in this process, and the rows of one."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.open_model import Settings, open_model
from bulkinfer.results.find_output import require_job
from bulkinfer.results.parquet_parts import published_steps, read_part

from tests import pictures
from tests.forms import long
from tests.launches import config_of, write_photos
from tests.models import write_tiny_model

ON_CPU: dict[str, Any] = {"device": "cpu", "precision": "fp32"}


def rows_of(output: Path) -> pa.Table:
    """All rows of a results folder."""
    job = require_job(output)
    return pa.concat_tables([read_part(output, step, job.fingerprint)[1] for step in published_steps(output)])


def test_settings_are_those_of_a_launch() -> None:
    kinds = get_type_hints(LaunchConfig)
    names = {field.name for field in dataclasses.fields(LaunchConfig)}
    for name, kind in get_type_hints(Settings).items():
        assert name in names
        assert kind == kinds[name]


@pytest.mark.parametrize("input", ["uint8", "float32"])
@pytest.mark.parametrize("settings", [{}, {"save": ("topk", "logits", "embedding"), "top_k": 3, "save_precision": "fp16"}])
def test_rows_are_those_of_a_run(tmp_path: Path, input: str, settings: dict[str, Any]) -> None:
    config = config_of(tmp_path, photos=0, input=input, engine="inline", batches_per_step=2, **settings)
    photos = Path(config.data_dir)
    pictures.write_files(photos, {f"{n:03d}.jpg": pictures.jpeg(90 + n, 70, n) for n in range(17)})
    pictures.write_files(photos, {f"bad-{name}": data for name, data in pictures.NOT_PICTURES.items()})
    assert launch(config).exit_code == 3
    expected = rows_of(tmp_path / "out")
    assert {"ok", "error"} == set(expected["status"].to_pylist())
    with open_model(tmp_path / "models" / "tiny", **ON_CPU, **settings) as predictor:
        found = predictor.predict([photos / os.fsdecode(key) for key in expected["key"].to_pylist()])
        from_bytes = predictor.predict([(photos / key).read_bytes() for key in expected["key"].to_pylist()])
    assert found.column_names == from_bytes.column_names == expected.column_names
    assert found["key"].to_pylist() == [str(photos / key) for key in expected["key"].to_pylist()]
    for name in expected.column_names:
        if name != "key":
            assert found[name].to_pylist() == expected[name].to_pylist(), name
            assert name == "key_bytes" or from_bytes[name].to_pylist() == expected[name].to_pylist(), name


def test_a_network_is_found_by_name_or_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tiny_model(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    for model in ("tiny", "Tiny", "models/tiny", str(folder), folder, Path("models/tiny")):
        with open_model(model, **ON_CPU) as predictor:
            assert predictor.card.name == "tiny"
    monkeypatch.chdir(folder)
    with open_model(".", **ON_CPU) as predictor:
        assert predictor.card.name == "tiny"
    with open_model("tiny", model_path=tmp_path / "models", **ON_CPU) as predictor:
        assert predictor.card.name == "tiny"


@pytest.mark.parametrize(("made", "asked", "batch_size"), [((2, 6, 8), None, 6), ((2, 8), None, 8), ((2, 8), 2, 2)])
def test_the_batch_size_is_one_that_was_made(tmp_path: Path, made: tuple[int, ...], asked: int | None, batch_size: int) -> None:
    folder = write_tiny_model(tmp_path, batch_sizes=made)
    with open_model(folder, batch_size=asked, **ON_CPU) as predictor:
        assert predictor.batch_size == batch_size


def test_what_is_missing_is_named_with_the_command(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, batch_sizes=(2,))
    with pytest.raises(UsageError, match=r"model_5\.onnx does not exist: run get_model .*--batch_size 5"):
        open_model(folder, batch_size=5, **ON_CPU)
    with pytest.raises(UsageError, match="batch_size is 0: it must be at least 1"):
        open_model(folder, batch_size=0, **ON_CPU)
    with pytest.raises(UsageError, match=rf"{tmp_path}/other/card\.json does not exist: get_model makes the networks that"):
        open_model(tmp_path / "other", **ON_CPU)
    with pytest.raises(UsageError, match="--device abacus: known are auto"):
        open_model(folder, device="abacus")
    with pytest.raises(UsageError, match="--save pose: tiny has only topk, logits, embedding, none"):
        open_model(folder, save=("pose",), **ON_CPU)


@long
def test_auto_is_settled_as_by_a_launch(tmp_path: Path) -> None:
    config = config_of(tmp_path, photos=4, engine="inline", device="auto", precision="auto")
    assert launch(config).exit_code == 0
    job = require_job(tmp_path / "out")
    with open_model(tmp_path / "models" / "tiny", batch_size=4) as predictor:
        assert (predictor.provider, predictor.precision) == (job.resolved["provider"], job.resolved["precision"])
        assert predictor.predict(write_photos(tmp_path / "more", 1) / "000-black.png")["status"].to_pylist() == ["ok"]
