"""get_model --precision int8 and infer_launch --precision int8 as a user calls them, on both providers of processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.results.job_file import job_path

from tests import pictures
from tests.commands import get_model, records, run, summary
from tests.foreign_graphs import deep_graph, recipe_file, save
from tests.forms import long

pytestmark = long


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, openvino_for_module: None) -> Path:
    """A folder with a graph, its recipe, 120 pictures, and the network with its variant in models/net."""
    home = tmp_path_factory.mktemp("home")
    files = {f"{n:03d}.png": pictures.encode(pictures.photo(24, 20, seed=n)) for n in range(120)}
    pictures.write_files(home / "photos", {**files, "broken.png": pictures.cut(files["000.png"])})
    save(deep_graph(), home)
    recipe_file(home)
    words = ("--onnx", "m.onnx", "--name", "net", "--recipe", "recipe.json", "--scores", "logits", "--batch_size", 4)
    pictures.write_files(home / "blocked", {"torch.py": b"raise ImportError('torch was imported')"})
    without_torch = {"PYTHONPATH": str(home / "blocked")}
    done = get_model(home, *words, "--precision", "int8", "--calibration_dir", "photos", env=without_torch)
    lines = done.stdout.splitlines()
    assert "1 that cannot be read left out (such as broken.png: truncated PNG" in done.stdout
    assert "80 to calibrate, 40 held out to judge" in done.stdout
    assert any(line.startswith("int8, minmax, on cpu: top-1 agrees on ") for line in lines)
    assert any(", on openvino: top-1 agrees on " in line and line.endswith(": passes") for line in lines)
    assert lines[-1] == "next: infer_launch --model_name net --batch_size 4 --precision int8 --data_dir photos"
    return home


def launch(home: Path, *words: object, code: int = 3) -> Any:
    done = run("infer_launch", "--model_name", "net", "--batch_size", 4, "--data_dir", "photos", *words, cwd=home)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_rows_of_int8_are_close_to_fp32_and_say_what_they_are(home: Path) -> None:
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for device in ("cpu", "openvino"):
        for precision in ("fp32", "int8"):
            output = home / f"{device}-{precision}"
            done = launch(home, "--device", device, "--precision", precision, "--output", output)
            assert f"device: {device} (as asked)\nprecision: {precision} (as asked)\n" in done.stdout
            rows[device, precision] = records(output)
            identity = json.loads(job_path(output).read_text())["identity"]
            part = next(output.glob("part-*"))
            facts = json.loads(pq.ParquetFile(part).metadata.metadata[b"bulkinfer"])
            told = (summary(home / "logs")["precision"]["ran"], identity["precision"], facts["ran"]["precision"])
            assert told == (precision,) * 3
    for device in ("cpu", "openvino"):
        precise, coarse = rows[device, "fp32"], rows[device, "int8"]
        good = [key for key, row in precise.items() if row["status"] == "ok" and row["scores"][0] - row["scores"][1] > 0.05]
        assert len(good) > 60
        assert sum(precise[key]["class_ids"][0] == coarse[key]["class_ids"][0] for key in good) >= 0.97 * len(good)
        assert any(precise[key]["scores"] != coarse[key]["scores"] for key in good)


def test_int8_is_another_job_than_fp32(home: Path) -> None:
    output = home / "mixed"
    launch(home, "--device", "cpu", "--output", output)
    done = launch(home, "--device", "cpu", "--output", output, "--precision", "int8", code=2)
    assert 'precision ("auto" there, "int8" now)' in done.stderr
    assert "graph_sha256" in done.stderr


def test_another_batch_size_of_the_variant(home: Path) -> None:
    done = launch(home, "--precision", "int8", "--batch_size", 5, "--device", "openvino", "--limit", 20, code=0)
    assert "int8/model_5.onnx does not exist: it is made from model.onnx and checked, once" in done.stdout
    done = get_model(home, "--model_name", "net", "--batch_size", 8, "--precision", "int8")
    assert "added and checked model_8.onnx" in done.stdout
    launch(home, "--precision", "int8", "--batch_size", 8, "--device", "openvino", "--limit", 20, code=0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--calibration_dir", "photos"), "--calibration_dir belongs to --precision int8"),
        (("--precision", "int8", "--calibration_dir", "nowhere"), "--calibration_dir: nowhere is no folder"),
        (("--precision", "int8", "--calibration_dir", "few"), "at least 32 different ones are needed"),
        (("--precision", "int8", "--calibration_dir", "empty"), "--calibration_dir: "),
    ],
)
def test_pictures_that_do_not_do(home: Path, words: tuple[object, ...], told: str) -> None:
    (home / "empty").mkdir(exist_ok=True)
    pictures.write_files(home / "few", {f"{n}.png": pictures.encode(pictures.photo(seed=n)) for n in range(5)})
    assert told in get_model(home, "--model_name", "net", "--batch_size", 4, *words, code=2).stderr


def test_a_variant_that_does_not_pass_is_refused_with_its_figures(home: Path, tmp_path: Path) -> None:
    words = ("--onnx", save(deep_graph(giant=3e4), tmp_path), "--name", "bad", "--recipe", "recipe.json", "--scores", "logits")
    done = get_model(home, *words, "--precision", "int8", "--calibration_dir", "photos", code=1)
    assert "no variant was made: of 9 candidates the best, " in done.stderr
    assert "(99% must agree): stay with --precision fp32" in done.stderr
    assert (home / "models" / "bad" / "card.json").exists()
    assert not (home / "models" / "bad" / "int8").exists()
    refused = launch(home, "--model_name", "bad", "--batch_size", 6, "--precision", "int8", code=2)
    assert "run get_model --model_name bad --batch_size 6 --precision int8 --calibration_dir photos" in refused.stderr
