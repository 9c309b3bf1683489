"""`bulkinfer score` and `bulkinfer compare` as a user calls them."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests import pictures
from tests.commands import get_model, records, run, run_here
from tests.foreign_graphs import deep_graph, recipe_file, save
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model

ROOT = Path(__file__).parents[2]
NUM = 400  # pictures for a change of precision: few of them are near-ties


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A tiny network, 12 pictures in folders of their classes but for one in a wrong folder, and a job on them."""
    write_tiny_model(tmp_path / "models", batch_sizes=(4,))
    write_photos(tmp_path / "flat", 12)
    for path in (tmp_path / "flat").iterdir():
        folder = tmp_path / "photos" / path.stem.partition("-")[2]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
    shutil.copy(tmp_path / "flat" / "001-red.png", tmp_path / "photos" / "lime" / "wrong.png")
    (tmp_path / "photos" / "red" / "broken.png").write_bytes(b"not a picture")
    launch(tmp_path, "a")
    return tmp_path


def launch(home: Path, output: str, *words: object, code: int = 3) -> None:
    given = ("--model_name", "tiny", "--batch_size", 4, "--device", "cpu", "--precision", "fp32", "--data_dir", "photos")
    done = run("infer_launch", *given, "--output", output, *words, cwd=home)
    assert done.returncode == code, done.stdout + done.stderr


def test_score(home: Path) -> None:
    done = run("bulkinfer", "score", "--labels", "folder", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "scored: 13 of 14 rows; 1 error row\n" in done.stdout
    assert "top-1: 92.31 % (12 of 13); 85.71 % if the 1 error row counts as wrong\n" in done.stdout
    assert "      2         3  2 lime -> 1 red (1)\n" in done.stdout
    (folder,) = (home / "logs").glob("tiny-*/score")
    assert json.loads((folder / "score.json").read_text())["top"]["1"]["right"] == 12
    gate = run("bulkinfer", "score", "a", "--labels", "folder", "--at_least", 0.93, "--to", "gate", cwd=home)
    assert gate.returncode == 1
    assert gate.stderr == "bulkinfer score: top-1 is 0.9231, below --at_least 0.93\n"
    assert {path.name for path in (home / "gate").iterdir()} == {"score.json", "classes.csv", "confusion.csv", "confusion.png"}
    to_gate = ("score", "a", "--labels", "folder", "--to", "gate")
    refused = run("bulkinfer", *to_gate, cwd=home)
    assert refused.returncode == 2
    assert refused.stderr.endswith("gate/score.json exists: give another place with --to, or --overwrite to replace it\n")
    assert run("bulkinfer", *to_gate, "--overwrite", cwd=home).returncode == 0
    assert run("bulkinfer", "score", "--labels", "folder", cwd=home).returncode == 0, "the log folder needs no --overwrite"
    figures = run_here("bulkinfer", "score", "a", "--labels", "folder", "--to", "-", "--at_least", 0.93, cwd=home)
    assert (figures.returncode, json.loads(figures.stdout)["top"]["1"]["right"]) == (1, 12)
    assert "top-1: 92.31 % (12 of 13)" in figures.stderr
    wrong = run("bulkinfer", "score", "a", "--labels", "folder", "--at_least", 76, cwd=home)
    assert wrong.returncode == 2
    assert wrong.stderr == "bulkinfer score: --at_least 76 is no share: give a number from 0 to 1, such as 0.76\n"


def test_run_with_labels(home: Path) -> None:
    words = ("photos", "--model", "tiny", "--batch_size", 4, "--device", "cpu", "--precision", "fp32")
    done = run("bulkinfer", "run", *words, "--labels", "folder", "--output", "my rows", cwd=home)
    assert (done.returncode, done.stderr) == (3, "")
    lines = done.stdout.splitlines()
    shown = lines[lines.index("labels: the column label of the rows") :]
    assert "top-1: 92.31 % (12 of 13); 85.71 % if the 1 error row counts as wrong" in shown
    assert lines[-1] == "next: bulkinfer report 'my rows'"
    page = run_here(*shlex.split(lines[-1].removeprefix("next: ")), cwd=home)
    assert (page.returncode, page.stderr) == (0, "")

    scored = run_here("bulkinfer", "score", "my rows", cwd=home)
    assert (scored.returncode, scored.stderr) == (0, "")
    assert "labels: the column label of the rows" in scored.stdout.splitlines()
    assert [line for line in shown if line.startswith("top")] == [
        line for line in scored.stdout.splitlines() if line.startswith("top")
    ]
    refused = run_here("bulkinfer", "score", "a", cwd=home)
    assert refused.returncode == 2
    assert refused.stderr.startswith("bulkinfer score: no labels given, and the rows of a have none: use --labels folder, or ")


@long
def test_run_with_labels_that_rows_do_not_hold(home: Path) -> None:
    """COCO annotations, and labels that are no class of the network: the rows of a job stay as they are."""
    keys = sorted(str(path.relative_to(home / "photos")) for path in (home / "photos").rglob("*.png"))
    images = [{"id": number, "file_name": key} for number, key in enumerate(keys)]
    (home / "coco.json").write_text(json.dumps({
        "images": images, "categories": [{"id": 7, "name": "red"}],
        "annotations": [{"id": one["id"], "image_id": one["id"], "category_id": 7} for one in images],
    }))  # fmt: skip
    words = ("photos", "--model", "tiny", "--batch_size", 4, "--device", "cpu", "--precision", "fp32")
    done = run("bulkinfer", "run", *words, "--labels", "coco.json", "--output", "a", cwd=home)
    assert (done.returncode, done.stderr) == (3, "")
    assert "total: nothing left to do\n" in done.stdout
    assert f"labels: {len(keys)} images of coco.json\n" in done.stdout
    assert done.stdout.endswith("next: bulkinfer report a\n")
    (home / "other.csv").write_text("file,label\n" + "".join(f"{key},nothing\n" for key in keys))
    done = run("bulkinfer", "run", *words, "--labels", "other.csv", "--output", "b", cwd=home)
    assert done.returncode == 3, "the code of the launch"
    assert done.stderr.startswith("bulkinfer run: no accuracy: none of 14 rows can be scored: ")
    assert done.stdout.endswith("next: bulkinfer show b\n")
    missing = run_here("bulkinfer", "run", *words, "--labels", "missing.json", "--output", "c", cwd=home)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "missing.json" in missing.stderr


def test_compare(home: Path) -> None:
    (home / "photos" / "red" / "broken.png").unlink()
    launch(home, "b", "--top_k", 3, code=0)
    done = run("bulkinfer", "compare", "a", "b", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "differs: top_k: A 5, B 3\n" in done.stdout
    assert "same best class: 100.00 % (13 of 13 pictures ok in both)\n" in done.stdout
    assert "only in A: 1 picture: red/broken.png\n" in done.stdout
    counts = run_here("bulkinfer", "compare", "a", "b", "--to", "-", cwd=home)
    assert (counts.returncode, json.loads(counts.stdout)["compared"]) == (0, 13)
    refused = run("bulkinfer", "compare", "a", cwd=home)
    assert refused.returncode == 2
    assert refused.stderr.startswith("bulkinfer compare: 1 jobs given: name two, with a blank between them, as in: ")


def adopt(home: Path, graph: onnx.ModelProto, name: str, *words: object) -> None:
    """Make models/NAME/ of a graph."""
    save(graph, home)
    recipe_file(home)
    given = ("--onnx", "m.onnx", "--name", name, "--recipe", "recipe.json", "--scores", "logits", "--batch_size", 4)
    get_model(home, *given, *words)


@long
def test_compare_finds_what_another_precision_changed(tmp_path: Path) -> None:
    files = {f"{n:04d}.png": pictures.encode(pictures.photo(24, 20, seed=n)) for n in range(NUM)}
    pictures.write_files(tmp_path / "photos", files)
    pictures.write_files(tmp_path / "few", dict(list(files.items())[:120]))
    graph = deep_graph()
    adopt(tmp_path, graph, "probe")
    launch(tmp_path, "probe", "--model_name", "probe", "--data_dir", "few", "--save", "y", code=0)
    mean = np.mean([row["y"] for row in records(tmp_path / "probe").values()], axis=0, dtype=np.float32)
    (bias,) = (value for value in graph.graph.initializer if value.name == "bias")
    bias.CopyFrom(numpy_helper.from_array(-mean, "bias"))  # no class is ahead: many pictures are near-ties
    adopt(tmp_path, graph, "net", "--precision", "int8", "--calibration_dir", "few")
    for precision in ("fp32", "int8"):
        launch(tmp_path, precision, "--model_name", "net", "--precision", precision, code=0)
    done = run("bulkinfer", "compare", "fp32", "int8", "--to", "to", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, other = (records(tmp_path / precision) for precision in ("fp32", "int8"))
    changed = [key for key in one if one[key]["class_ids"][0] != other[key]["class_ids"][0]]
    assert changed
    assert f"({NUM - len(changed):,} of {NUM:,} pictures ok in both)" in done.stdout
    assert "differs: precision: A fp32, B int8\n" in done.stdout
    rows = list(csv.DictReader((tmp_path / "to" / "changed.csv").read_text().splitlines()))
    assert sorted(row["key"] for row in rows) == sorted(changed)
    for row in rows:
        assert int(row["class_a"]) == one[row["key"]]["class_ids"][0]
        assert int(row["class_b"]) == other[row["key"]]["class_ids"][0]
    assert (tmp_path / "to" / "changed.png").is_file()


@long
def test_real_weights_on_labelled_photographs(lite0: Path, tmp_path: Path) -> None:
    """18 of the 20 photographs of tools/demo whose class is known: their names end with the number of the class."""
    photos = ROOT / "datasets" / "demo-photos"  # where tools/demo puts them
    subprocess.run([sys.executable, ROOT / "tools" / "demo_photos.py", photos], check=True, timeout=600)
    named = sorted((photos / "foolbox").glob("imagenet_*.jpg"))
    assert len(named) == 20
    lines = [f'"{path.name}",{int(path.stem.rpartition("_")[2])}' for path in named]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *lines, ""]))
    words = ("--model_name", "efficientnet_lite0", "--model_path", lite0 / "models", "--data_dir", photos)
    launched = run("infer_launch", *words, "--precision", "fp32", "--device", "cpu", cwd=tmp_path)
    assert launched.returncode == 0, launched.stderr
    done = run("bulkinfer", "score", "--labels", "labels.csv", "--at_least", 0.9, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "scored: 20 of 69 rows; 49 without a label\n" in done.stdout
    assert "top-1: 90.00 % (18 of 20)\n" in done.stdout
