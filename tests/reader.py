"""What a reader of the documents has before the first command: photographs, a network, small data sets, files of their own."""

from __future__ import annotations

import json
import re
import shutil
from itertools import product
from pathlib import Path

import onnx
import sklearn.datasets
from bulkinfer.zoo import NETWORKS
from PIL import Image

from tests import pictures
from tests.archives import picture_table, write_parquet, write_zip
from tests.cached_graphs import write_conv_model
from tests.data_sets import mnist_files, tar, write_files
from tests.foreign_graphs import foreign_graph
from tests.rules.source import ROOT
from tests.training import write_digits

# Class -> photograph of scikit-learn and the squares of it that EfficientNet-Lite0 takes for that class, mostly by far:
# how many, their least side, and the least distance from left and top
PHOTOS = {"palace": ("china.jpg", 72, 210, 90, 0), "daisy": ("flower.jpg", 26, 360, 50, 0)}
NAMES = ("one.jpg", "two.jpg", "three.jpg")


def furnish(folder: Path, lite0: Path) -> Path:
    """All of that, below `folder`; lite0 is a folder with models/efficientnet_lite0."""
    shutil.copytree(lite0 / "models", folder / "models")
    write_conv_model(folder / "models", "resnext101_32x4d", batch_size=6)  # the real one takes minutes
    _write_photos(folder / "photos")
    for split, label in product(("train", "val"), PHOTOS):
        (folder / "imagenet" / split / label).mkdir(parents=True)
        shutil.copy(folder / "photos" / label / "0.jpg", folder / "imagenet" / split / label)
    for number, name in enumerate(NAMES):
        shutil.copy(folder / "photos" / "daisy" / f"{number}.jpg", folder / "photos" / name)
    write_files(folder / "data" / "fashion_mnist", mnist_files(128))
    write_digits(folder / "digits")
    (folder / "imagenet-val").mkdir()
    (folder / "imagenet-val" / "000000.tar").write_bytes(tar({name: pictures.jpeg(seed=n) for n, name in enumerate(NAMES)}, ""))
    write_zip(folder / "photos.zip", _some_photos(folder))
    write_parquet(folder / "flowers" / "train-00000-of-00001.parquet", picture_table(_some_photos(folder)))
    _write_own_network(folder)
    _write_coco(folder)
    return folder


def _some_photos(folder: Path) -> dict[str, bytes]:
    return {f"daisy/{name}": (folder / "photos" / name).read_bytes() for name in NAMES}


def _write_photos(folder: Path) -> None:
    """Parts of the photographs in a folder for each class."""
    for label, (name, count, side, left, top) in PHOTOS.items():
        whole = Image.open(Path(sklearn.datasets.__path__[0]) / "images" / name)
        (folder / label).mkdir(parents=True)
        for number in range(count):
            x, y, width = left + number * 7 % 40, top + number * 3 % 50, side + number % 13
            whole.crop((x, y, x + width, y + width)).save(folder / label / f"{number}.jpg")


def _write_own_network(folder: Path) -> None:
    """A graph as somebody else exports it, and the names of its classes; docs/how-to/own-network.md shows its recipe."""
    graph = foreign_graph()
    side = NETWORKS["efficientnet_lite0"].recipe.height
    for dimension in graph.graph.input[0].type.tensor_type.shape.dim[2:]:
        dimension.dim_value = side
    onnx.save(graph, folder / "FILE.onnx")
    (folder / "labels.txt").write_text("a\nb\nc\nd\ne\n")
    (recipe,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "how-to" / "own-network.md").read_text(), re.DOTALL)
    (folder / "recipe.json").write_text(recipe)


def _write_coco(folder: Path) -> None:
    names = {number: f"COCO_val2014_{number:012d}.jpg" for number in (1, 2, 3)}
    pictures.write_files(folder / "val2014", {name: pictures.jpeg(seed=number) for number, name in names.items()})
    content = {
        "images": [{"id": number, "file_name": name, "width": 64, "height": 48} for number, name in names.items()],
        "annotations": [{"id": number, "image_id": number, "category_id": 18} for number in names],
        "categories": [{"id": 18, "name": "dog"}],
    }
    (folder / "instances_val2014.json").write_text(json.dumps(content))
