"""Training on class folders, and on tar and TFRecord files that partition_dataset packed of them, is the same bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.partitions.make_partitions import partition_dataset
from bulkinfer.train.data.opening import open_data, with_data_found
from bulkinfer.train.options import TrainConfig

from tests import pictures
from tests.training import assert_same_weights, config_of, table, trained

CLASSES = ("ant", "bee", "cat")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Class folders of 24 training and 6 validation pictures, of several sizes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for split, count in (("train", 8), ("val", 2)):
        for label, name in enumerate(CLASSES):
            files = {f"{n}.jpg": pictures.jpeg(20 + n, 18 + label, 100 * label + n) for n in range(count)}
            pictures.write_files(tmp_path / "folder" / split / name, files)
    return tmp_path / "folder"


def packed(folder: Path, mode: str) -> Path:
    for split in ("train", "val"):
        partition_dataset(folder / split, labels="folders", mode=mode, output=folder.parent / mode)
    return folder.parent / mode


def test_weights_are_equal(folder: Path, tmp_path: Path) -> None:
    """Order, crops and labels of the samples, and the scores of validation."""
    options = {"dataset": "imagenet", "image_size": 8, "augment": "resized_crop", "steps": 7, "validation": "after"}
    runs = {"folder": trained(tmp_path / "a", **options, data_dir=str(folder))}
    for mode in ("tar", "tfrecord"):
        runs[mode] = trained(tmp_path / mode, **options, data_dir=str(packed(folder, mode)))
        assert_same_weights(runs["folder"], runs[mode])
        columns = ("step", "accuracy", "loss", "count")
        assert table(runs[mode], "validation.csv", *columns) == table(runs["folder"], "validation.csv", *columns)


def test_boxes_change_the_crops_of_pictures_that_have_any(folder: Path, tmp_path: Path) -> None:
    options = {"dataset": "folder", "image_size": 8, "augment": "resized_crop", "data_dir": str(folder)}
    with pytest.raises(UsageError, match="--use_boxes chooses the parts that --augment resized_crop cuts out"):
        open_data(with_data_found(config_of(tmp_path, **{**options, "augment": "flip"}, use_boxes=True)))
    (folder / "imagenet_2012_bounding_boxes.csv").write_text("3.jpg,0.9,0.9,1.0,1.0\n")
    plain = trained(tmp_path, **options, steps=3)
    with_boxes = trained(tmp_path, **options, steps=3, use_boxes=True)
    with pytest.raises(AssertionError):
        assert_same_weights(plain, with_boxes)
    with pytest.raises(UsageError, match="--use_boxes cannot be changed when a run is continued"):
        trained(
            tmp_path, **{**options, "steps": 4, "resume": str(with_boxes), "log_path": TrainConfig.log_path, "use_boxes": False}
        )
