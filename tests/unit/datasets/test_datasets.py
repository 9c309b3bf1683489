"""The table of readers: names, detection, and the table of paths."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.datasets import READERS, detect, find_reader, read_dataset
from bulkinfer.datasets.types import PathTable
from bulkinfer.errors import UsageError

from tests.data_sets import cifar10_python, mnist_files, write_files


def test_names_are_forgiving() -> None:
    assert find_reader("CIFAR-10") is READERS["cifar10"]
    assert find_reader("fashion-mnist") is READERS["fashion_mnist"]
    assert find_reader("ImageNet") is READERS["folder"]
    with pytest.raises(UsageError, match="unknown data set 'cifar11': known data sets are cifar10, cifar100"):
        find_reader("cifar11")


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (cifar10_python(1), "cifar10"),
        ({"cifar-10-batches-bin/test_batch.bin": b""}, "cifar10"),
        ({"cifar-100-python/train": b""}, "cifar100"),
        ({"test.bin": b""}, "cifar100"),
        ({f"MNIST/raw/{name}": data for name, data in mnist_files().items()}, "mnist"),
        ({f"fashion-mnist/{name}": data for name, data in mnist_files().items()}, "fashion_mnist"),
        ({"digits.csv.gz": b""}, "digits"),
        ({"train/cat/1.jpg": b"", "val/cat/1.jpg": b""}, "folder"),
    ],
)
def test_a_folder_tells_what_it_holds(files: dict[str, bytes], name: str, tmp_path: Path) -> None:
    assert detect(write_files(tmp_path, files)) == name


def test_bare_idx_files_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    assert detect(write_files(tmp_path / "fashion-mnist", mnist_files())) == "fashion_mnist"
    assert detect(write_files(tmp_path / "mnist", mnist_files())) == "mnist"
    with pytest.raises(UsageError, match="may be mnist or fashion_mnist: say which with --dataset"):
        detect(write_files(tmp_path / "raw", mnist_files()))


def test_nothing_to_detect(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds none of the known data sets"):
        detect(tmp_path)
    with pytest.raises(UsageError, match="gone does not exist: give the folder of the data set"):
        read_dataset("mnist", tmp_path / "gone", "train")


def test_class_order_is_for_class_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--class_order is for data sets in class folders, and cifar10 is not one"):
        read_dataset("cifar10", tmp_path, "train", class_order="number")
    with pytest.raises(UsageError, match="--class_order size: the choices are text and number"):
        read_dataset("folder", tmp_path, "train", class_order="size")


def test_paths_come_back_as_they_went_in() -> None:
    names = [b"a/1.jpg", b"", b"b/\xff\n.jpg", b"c"]
    table = PathTable.of(b"/root", names)
    assert len(table) == 4
    assert [table[i] for i in range(4)] == [b"/root/" + name for name in names]
    assert table[-1] == b"/root/c"
    for index in (4, -5):
        with pytest.raises(IndexError):
            table[index]
    copy = pickle.loads(pickle.dumps(table))  # as a loader worker that is not forked gets it
    assert [copy[i] for i in range(4)] == [table[i] for i in range(4)]


def test_a_million_names_cost_little() -> None:
    """1.28 million names, with labels, must cost under 400 MB, also while they are collected."""
    count = 100_000
    tracemalloc.start()
    table = PathTable.of(b"/data/imagenet/train", (b"n%08d/n%08d_%d.JPEG" % (i // 1300, i // 1300, i) for i in range(count)))
    labels = np.repeat(np.arange(count // 100, dtype=np.int64), 100)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == len(labels)
    allowed = 400e6 * count / 1_280_000
    assert peak < allowed / 3, f"{peak:,} bytes at the peak"
    assert kept < allowed / 5, f"{kept:,} bytes kept"
