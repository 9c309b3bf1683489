"""get_model --precision fp16 as a user calls it, and infer_launch with what it made, on a provider that is told to need it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands.infer_launch import main as infer_launch
from bulkinfer.results.job_file import job_path
from bulkinfer.runtime.providers import PROVIDERS

from tests import pictures
from tests.commands import get_model, records
from tests.foreign_graphs import deep_graph, recipe_file, save
from tests.forms import long


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, its recipe, 60 pictures, and the network with its variant in models/net."""
    home = tmp_path_factory.mktemp("home")
    pictures.write_files(home / "photos", {f"{n:03d}.png": pictures.encode(pictures.photo(24, 20, seed=n)) for n in range(60)})
    save(deep_graph(), home)
    recipe_file(home)
    pictures.write_files(home / "blocked", {"torch.py": b"raise ImportError('torch was imported')"})
    words = ("--onnx", "m.onnx", "--name", "net", "--recipe", "recipe.json", "--scores", "logits", "--batch_size", 4)
    done = get_model(home, *words, "--precision", "fp16", env={"PYTHONPATH": str(home / "blocked")})
    lines = done.stdout.splitlines()
    assert "fp16: no --calibration_dir: judged on the golden pictures only, by the error of the output" in lines
    assert "fp16: every node in fp16, judged on the golden pictures only" in lines
    assert any(line.startswith("converted and checked in ") for line in lines)
    assert lines[-1] == "next: infer_launch --model_name net --batch_size 4 --precision fp16 --device cuda --data_dir photos"
    return home


def test_pictures_judge_it_and_the_same_again_is_nothing_to_do(home: Path) -> None:
    words = ("--model_name", "net", "--batch_size", 4, "--precision", "fp16", "--calibration_dir", "photos")
    done = get_model(home, *words)
    assert "60 of 60 pictures in photos: all to judge" in done.stdout
    assert "fp16: every node in fp16, 60 pictures to judge" in done.stdout
    assert "fp16, every node in fp16, values rounded, on cpu: top-1 agrees on 100.0% of " in done.stdout
    assert "is already there, and its files are as recorded" in get_model(home, *words).stdout
    refused = get_model(home, *words[:4], "--calibration_dir", "photos", code=2)
    assert "--calibration_dir belongs to --precision int8 or fp16" in refused.stderr


def test_rows_are_those_of_the_variant(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A provider of processors that must be given a graph in fp16, as that of CUDA must; its workers are this process."""
    cpu = PROVIDERS["cpu"]
    monkeypatch.setitem(PROVIDERS, "cpu", replace(cpu, precisions=(*cpu.precisions, "fp16"), variants=(*cpu.variants, "fp16")))
    monkeypatch.chdir(home)
    base = ["--model_name", "net", "--batch_size", "4", "--data_dir", "photos", "--device", "cpu", "--engine", "inline"]
    for precision in ("fp32", "fp16"):
        assert infer_launch([*base, "--precision", precision, "--output", precision]) == 0
        assert f"precision: {precision} (as asked)" in capsys.readouterr().out
    precise, half = records(home / "fp32"), records(home / "fp16")
    assert precise.keys() == half.keys()
    assert all(abs(precise[key]["scores"][0] - half[key]["scores"][0]) < 0.01 for key in half)
    assert any(precise[key]["scores"] != half[key]["scores"] for key in half)
    variant = json.loads((home / "models" / "net" / "fp16" / "model_4.json").read_text())
    assert json.loads(job_path(home / "fp16").read_text())["identity"]["graph_sha256"] == variant["sha256"]
    assert infer_launch([*base, "--precision", "fp16", "--batch_size", "5", "--output", "five"]) == 0
    assert "fp16/model_5.onnx does not exist: it is made from model.onnx and checked, once" in capsys.readouterr().out


@long
def test_a_variant_that_does_not_pass_is_refused_with_its_figures(home: Path, tmp_path: Path) -> None:
    graph = save(deep_graph(giant=1e5), tmp_path)
    words = ("--onnx", graph, "--name", "bad", "--recipe", "recipe.json", "--scores", "logits", "--precision", "fp16")
    done = get_model(home, *words, "--calibration_dir", "photos", code=1)
    assert "no variant was made: every node in fp16, values rounded: top-1 agrees on " in done.stderr
    assert done.stderr.endswith("(all values must be finite): stay with --precision fp32\n")
    assert (home / "models" / "bad" / "card.json").exists()
    assert not (home / "models" / "bad" / "fp16").exists()
