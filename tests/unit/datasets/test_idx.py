"""MNIST and Fashion-MNIST: values in place, and every broken file named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.datasets import read_dataset
from bulkinfer.datasets.types import ArrayPictures
from bulkinfer.errors import UsageError

from tests.data_sets import idx_images, idx_labels, mnist_files, write_files

IMAGES = np.arange(2 * 3 * 4).reshape(2, 3, 4)


def read(folder: Path, split: str = "valid", name: str = "mnist") -> ArrayPictures:
    found = read_dataset(name, folder, split)
    assert isinstance(found, ArrayPictures)
    return found


@pytest.mark.parametrize("kind", [("images-idx3-ubyte", "labels-idx1-ubyte"), ("images.idx3-ubyte", "labels.idx1-ubyte")])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_plain_and_gzipped(kind: tuple[str, str], end: str, tmp_path: Path) -> None:
    contents = [idx_images(IMAGES), idx_labels([9, 0])]
    files = {f"t10k-{name}{end}": data for name, data in zip(kind, contents, strict=True)}
    write_files(tmp_path, {name: gzip.compress(data) if end else data for name, data in files.items()})
    found = read(tmp_path)
    assert found.images_NHWC.shape == (2, 3, 4, 1)
    assert found.images_NHWC[..., 0].tolist() == IMAGES.tolist()
    assert found.labels.tolist() == [9, 0]
    assert found.labels.dtype == np.int64


def test_each_set_has_its_folder_and_its_names(tmp_path: Path) -> None:
    write_files(tmp_path / "fashion_mnist", mnist_files(3))
    write_files(tmp_path / "mnist", mnist_files(5))
    assert len(read(tmp_path, "train")) == 5
    assert read(tmp_path).class_names[9] == "nine"
    assert len(read(tmp_path, "train", "fashion_mnist")) == 3
    assert read(tmp_path, name="fashion_mnist").class_names[9] == "Ankle boot"


GOOD_IMAGES, GOOD_LABELS = gzip.compress(idx_images(IMAGES)), gzip.compress(idx_labels([1, 2]))


@pytest.mark.parametrize(
    ("images", "labels", "reason"),
    [
        (
            gzip.compress(idx_images(IMAGES)[:-1]),
            GOOD_LABELS,
            "images-idx3-ubyte.gz is damaged: its header promises 24",
        ),
        (gzip.compress(idx_images(IMAGES) + b"\0"), GOOD_LABELS, "promises 24 bytes of pixels or labels, but more follow"),
        (gzip.compress(idx_images(IMAGES)[:9]), GOOD_LABELS, "it ends within its header, at byte 9"),
        (gzip.compress(b""), GOOD_LABELS, "it ends within its header, at byte 0"),
        (GOOD_IMAGES[:-3], GOOD_LABELS, "images-idx3-ubyte.gz is damaged: it cannot be read to its end as a gzip file"),
        (GOOD_IMAGES[:-6] + b"abc" + GOOD_IMAGES[-3:], GOOD_LABELS, "it cannot be read to its end as a gzip file"),
        (b"<html>", GOOD_LABELS, "as a gzip file"),
        (GOOD_LABELS, GOOD_LABELS, "is not an idx file of pictures: it begins with 0x00000801, not 0x00000803"),
        (GOOD_IMAGES, GOOD_IMAGES, "is not an idx file of labels: it begins with 0x00000803, not 0x00000801"),
        (gzip.compress(struct.pack(">IIII", 0x803, 2, 0, 4)), GOOD_LABELS, "its header gives the sizes 2 x 0 x 4"),
        (gzip.compress(struct.pack(">IIII", 0x803, 2, 1 << 31, 4)), GOOD_LABELS, "its header gives the sizes"),
        (gzip.compress(struct.pack(">IIII", 0x803, 0xFFFF, 100, 100)), GOOD_LABELS, "but 0 follow"),
        (
            gzip.compress(struct.pack(">IIII", 0x803, 0xFFFFFFFF, 65535, 65535)),
            GOOD_LABELS,
            "bytes, and such a set has at most 1,073,741,824",
        ),
        (GOOD_IMAGES, gzip.compress(idx_labels([1])), "holds 2 pictures and t10k-labels-idx1-ubyte.gz 1 labels"),
        (GOOD_IMAGES, gzip.compress(idx_labels([1, 10])), "labels-idx1-ubyte.gz is damaged: picture 1 has label 10"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_named(images: bytes, labels: bytes, reason: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"t10k-images-idx3-ubyte.gz": images, "t10k-labels-idx1-ubyte.gz": labels})
    with pytest.raises(UsageError) as error:
        read(tmp_path)
    assert reason in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no train-images-idx3-ubyte"):
        read(tmp_path, "train")
    write_files(tmp_path, {"t10k-images-idx3-ubyte.gz": GOOD_IMAGES})
    with pytest.raises(UsageError, match=r"lacks t10k-labels-idx1-ubyte.gz: the data set is incomplete"):
        read(tmp_path)
    with pytest.raises(UsageError, match=r"lacks train-images-idx3-ubyte.gz"):
        read(tmp_path, "train")
