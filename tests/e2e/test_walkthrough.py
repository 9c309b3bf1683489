"""The walk of docs/tutorial.md with real weights, from get_model to verify; rows against a plain script."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from bulkinfer.images.decode import decode, prepare_decoder
from bulkinfer.images.preprocess import prepare
from PIL import Image, ImageOps

from tests import pictures
from tests.commands import records, rows, run
from tests.forms import long

SIZES = [(640, 480), (480, 640), (500, 333), (224, 224), (1001, 257), (200, 150), (97, 311), (333, 334)]


@pytest.fixture(scope="module")
def place(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EfficientNet-Lite0 with its real weights at batch 6, and 26 pictures of many sizes in 3 partitions."""
    folder = shutil.copytree(lite0, tmp_path_factory.mktemp("walk") / "walk")
    files = {f"{i // 9}/{i}.jpg": pictures.jpeg(*SIZES[i % 8], seed=i, quality=90) for i in range(25)}
    files["turned.jpg"] = pictures.oriented(pictures.photo(640, 480, seed=99), 6)
    pictures.write_files(folder / "photos", files)
    split = run("partition_dataset", "--partitions", 3, cwd=folder, env={"DATA_DIR": "photos"})
    assert split.returncode == 0, split.stderr
    return folder


@pytest.fixture(scope="module")
def output(place: Path) -> Path:
    words = ("--num_devices", 2, "--device", "cpu", "--save", "topk,logits", "--output", "out")
    found = run("infer_launch", "--model_name", "efficientnet_lite0", *words, cwd=place)
    assert found.returncode == 0, found.stdout + found.stderr
    return place / "out"


def plain_pixels(path: Path, recipe: dict[str, Any]) -> np.ndarray:
    """Resize, then crop, with Pillow alone, by the card's rules."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    short = min(image.size)
    size = [int(recipe["resize_size"] * side / short) for side in image.size]
    image = image.resize(size, Image.Resampling[recipe["interpolation"].upper()])
    left, top = (round((side - recipe[name]) / 2) for side, name in zip(image.size, ("width", "height"), strict=True))
    return np.asarray(image.crop((left, top, left + recipe["width"], top + recipe["height"])))


def plain_scores(session: onnxruntime.InferenceSession, pixels: np.ndarray) -> np.ndarray:
    batch = np.zeros((6, *pixels.shape), np.uint8)
    batch[0] = pixels
    logits = session.run(["logits"], {"images": batch})[0][0].astype(np.float64)
    odds = np.exp(logits - logits.max())
    return np.asarray(odds / odds.sum())


def test_scores_agree_with_a_plain_script(place: Path, output: Path) -> None:
    folder = place / "models" / "efficientnet_lite0"
    recipe = json.loads((folder / "card.json").read_text())["recipe"]
    session = onnxruntime.InferenceSession(folder / "model_6.onnx", providers=["CPUExecutionProvider"])
    found = records(output)
    assert len(found) == 26
    for key, row in found.items():
        scores = plain_scores(session, plain_pixels(place / "photos" / key, recipe))
        assert row["class_ids"] == list(np.argsort(-scores)[:5])
        assert np.abs(scores[row["class_ids"]] - row["scores"]).max() < 2e-3, key


def test_scores_agree_when_fed_the_same_pixels(place: Path, output: Path) -> None:
    from bulkinfer.model.card import read_card

    prepare_decoder()
    folder = place / "models" / "efficientnet_lite0"
    card = read_card(folder / "card.json")
    session = onnxruntime.InferenceSession(folder / "model_6.onnx", providers=["CPUExecutionProvider"])
    slot = np.zeros((card.recipe.height, card.recipe.width, 3), np.uint8)
    for key, row in records(output).items():
        picture = decode((place / "photos" / key).read_bytes(), orientation="exif", max_pixels=10**8)
        prepare(picture.image, card.recipe, slot)
        scores = plain_scores(session, slot)
        assert np.abs(scores[row["class_ids"]] - row["scores"]).max() < 1e-4, key


@pytest.mark.usefixtures("openvino")
@long
def test_openvino_gives_the_same_classes(place: Path, output: Path, tmp_path: Path) -> None:
    words = ("--model_name", "efficientnet_lite0", "--device", "openvino", "--precision", "fp32", "--save", "topk,logits")
    found = run("infer_launch", *words, "--output", tmp_path, cwd=place)
    assert found.returncode == 0, found.stderr
    assert "nodes on OpenVINOExecutionProvider" in found.stdout
    cpu, openvino = rows(output), rows(tmp_path)
    logits = [np.array(table["logits"].to_pylist()) for table in (cpu, openvino)]
    assert np.abs(logits[0] - logits[1]).max() < 1e-3 * np.abs(logits[0]).max()


@pytest.mark.usefixtures("openvino")
@long
def test_bf16_runs_natively_or_is_refused_in_one_sentence(place: Path, tmp_path: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text()
    words = ("--model_name", "efficientnet_lite0", "--precision", "bf16")
    found = run("infer_launch", *words, "--output", tmp_path / "out", cwd=place)
    if "amx_bf16" in flags or "avx512_bf16" in flags:
        assert found.returncode == 0, found.stderr
        assert "bf16" in found.stdout
    else:
        assert found.returncode == 2
        assert found.stderr.count("\n") == 1
        assert "neither AMX nor AVX512-BF16: use --precision fp32" in found.stderr
        assert not (tmp_path / "out").exists()
        assert run("infer_launch", *words, "--dry_run", cwd=place).returncode == 2


def test_verify_agrees(place: Path, output: Path) -> None:
    found = run("bulkinfer", "verify", output, cwd=place)
    assert found.returncode == 0, found.stderr
    assert "records: 26, rows: 26 ok + 0 errors" in found.stdout
