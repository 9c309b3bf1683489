"""What was trained comes back as a network that finds what validate found: class folders, other channels; ways to validate."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from bulkinfer.model.card import read_card
from PIL import Image

from tests.commands import get_model, records, run
from tests.forms import long
from tests.training import VALID, checkpoints, runs_in, table, write_digits

pytestmark = long

CLASSES = ("1", "2", "10")  # in the order of numbers; as text 10 comes before 2
TINY = ("--model", "cifar_resnet8", "--micro_batch_size", 8, "--lr", 0.05)


def bulkinfer(home: Path, *words: object, code: int = 0) -> str:
    """What a command prints."""
    done = run("bulkinfer", *words, cwd=home)
    assert done.returncode == code, (done.stdout, done.stderr)
    return str(done.stdout + done.stderr)


def only_run(home: Path) -> Path:
    (found,) = runs_in(home / "logs")
    return found


def write_folders(home: Path) -> Path:
    """JPEGs of several sizes in numbered class folders: the classes differ in their colour, on noise."""
    random = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 7)):
        for label, name in enumerate(CLASSES):
            folder = home / "data" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 150, (24 + number, 40 - number, 3), dtype=np.uint8)
                pixels[..., label] += 60
                Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=90)
    return home / "data"


def test_class_folders_come_back(tmp_path: Path) -> None:
    data = write_folders(tmp_path)
    bulkinfer(tmp_path, "train", *TINY, "--data_dir", data, "--image_size", 24, "--epochs", 6, "--class_order", "number",
              "--validation", "none", "--augment", "resized_crop")  # fmt: skip
    folder = only_run(tmp_path)
    bulkinfer(tmp_path, "validate", folder)
    confusion = np.loadtxt(folder / f"confusion-{checkpoints(folder)[-1]}.csv", delimiter=",")
    get_model(tmp_path, "--checkpoint", folder, "--name", "coloured", "--batch_size", 4)
    assert read_card(tmp_path / "models" / "coloured" / "card.json").labels == CLASSES
    graph = onnx.load(tmp_path / "models" / "coloured" / "model_4.onnx", load_external_data=False).graph
    assert "BatchNormalization" not in {node.op_type for node in graph.node}, "norms are folded"
    words = ("--model_name", "coloured", "--batch_size", 4, "--data_dir", data / "val", "--output", "out", "--device", "cpu")
    bulkinfer(tmp_path, "infer_launch", *words, "--precision", "fp32")
    served = np.zeros((len(CLASSES), len(CLASSES)))
    for key, row in records(tmp_path / "out").items():
        served[CLASSES.index(key.split("/")[0]), row["class_ids"][0]] += 1
        assert row["class_names"][0] == CLASSES[row["class_ids"][0]]
    assert served.tolist() == confusion.tolist()
    assert np.trace(served) > served.sum() / 2, "learnt something"


@pytest.mark.parametrize("channels", [1, 4])
def test_other_channels(channels: int, tmp_path: Path) -> None:
    """A first layer of one channel gets grey, one of four a channel of zeros; also in the network that get_model makes."""
    write_digits(tmp_path / "data", 64)
    bulkinfer(tmp_path, "train", *TINY, "--dataset", "digits", "--data_dir", "data", "--image_size", 8, "--epochs", 3,
              "--input_channels", channels)  # fmt: skip
    folder = only_run(tmp_path)
    get_model(tmp_path, "--checkpoint", folder, "--name", "digits", "--batch_size", 8)
    rows = [line.split(",") for line in (tmp_path / "data" / "digits.csv").read_text().splitlines()][-VALID:]
    (tmp_path / "pictures").mkdir()
    for number, row in enumerate(rows):
        greys = (np.array(row[:-1], int) * 255 + 8) // 16
        Image.fromarray(greys.reshape(8, 8).astype(np.uint8)).save(tmp_path / "pictures" / f"{number:03d}.png")
    words = ("--model_name", "digits", "--batch_size", 8, "--data_dir", "pictures", "--output", "out", "--device", "cpu")
    bulkinfer(tmp_path, "infer_launch", *words, "--precision", "fp32")
    found = [row["class_ids"][0] for _, row in sorted(records(tmp_path / "out").items())]
    right = sum(best == int(row[-1]) for best, row in zip(found, rows, strict=True))
    assert right / VALID == pytest.approx(float(table(folder, "validation.csv", "accuracy")[-1][0]), rel=1e-6)


def test_one_checkpoint_and_a_damaged_one(tmp_path: Path) -> None:
    write_digits(tmp_path / "data", 40)
    bulkinfer(tmp_path, "train", *TINY, "--dataset", "digits", "--data_dir", "data", "--image_size", 8, "--epochs", 3,
              "--validation", "none", "--keep_last", 0)  # fmt: skip
    folder = only_run(tmp_path)
    first, second, third = checkpoints(folder)
    place = folder / "checkpoints"
    for path in (place / second, place / second / "weights.safetensors"):
        assert bulkinfer(tmp_path, "validate", path).startswith(f"{second}: top-1 ")
        assert table(folder, "validation.csv", "name") == [[second]]
    weights = place / first / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    told = bulkinfer(tmp_path, "validate", folder, code=1)
    assert f"{folder}: damaged and not validated: {first}" in told
    assert table(folder, "validation.csv", "name") == [[second], [third]]
    shutil.copytree(tmp_path / "data", tmp_path / "other")
    before = (folder / "validation.csv").read_bytes()
    for path in (place / third, folder):  # all of the run's, also those that have a row
        assert f"{third}: top-1 " in bulkinfer(tmp_path, "validate", path, "--data_dir", "other", code=int(path == folder))
    assert (folder / "validation.csv").read_bytes() == before, "scores on other pictures are only shown"


@pytest.mark.parametrize("is_folder", [False, True])
def test_memory_is_flat_from_the_second_epoch_on(is_folder: bool, tmp_path: Path) -> None:
    data = write_folders(tmp_path) if is_folder else write_digits(tmp_path / "data", 400)
    bulkinfer(tmp_path, "train", *TINY, "--data_dir", data, "--image_size", 32, "--epochs", 6, "--logs_per_epoch", 4)
    rows = table(only_run(tmp_path), "training.csv", "epoch", "memory_mb")
    later = [float(memory) for epoch, memory in rows if float(epoch) > 2]
    assert len(later) >= 16
    assert max(later) - min(later) < 50
