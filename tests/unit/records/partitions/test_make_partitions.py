"""make_partitions.py as Python calls it; tests/e2e/test_partition_dataset.py holds what it does."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.config import PartitionConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.json_file import read_json
from bulkinfer.launch.launcher import launch
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.partitions.make_partitions import partition_dataset
from bulkinfer.results.reader import read_results
from PIL import Image

from tests.launches import config_of, write_photos
from tests.logged import logged


def test_parameters_are_the_flags_with_their_defaults() -> None:
    parameters = inspect.signature(partition_dataset).parameters
    assert {name: given.default for name, given in parameters.items()} == {
        field.name: field.default for field in fields(PartitionConfig)
    }


def test_the_data_set_comes_back_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = write_photos(tmp_path / "photos", 10)
    lines: list[str] = []
    dataset = logged(lines, partition_dataset, photos, partitions=3, output=tmp_path / "shards")
    assert (dataset.num_records, len(dataset.partitions), dataset.root) == (10, 3, tmp_path / "shards")
    assert [partition.manifest.num_records for partition in dataset.partitions] == [4, 3, 3]
    assert lines[-1] == "wrote 3 partitions"
    again = logged(lines, partition_dataset, photos, partitions=3, output=tmp_path / "shards")
    assert again.content_hash == dataset.content_hash
    assert lines[-1] == "nothing to do: all partitions exist already"
    assert "next:" not in capsys.readouterr().out, "that is for who types commands"


def test_no_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no pictures: give a folder of pictures"):
        partition_dataset(tmp_path / "empty", output=tmp_path / "shards")
    assert not (tmp_path / "shards").exists()


def rows_of(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """Key, label and label_ids of the rows of a launch on the partitions, or the plain folder, that `changes` name."""
    config = config_of(folder, engine="inline", **changes)
    assert launch(config).exit_code == 0
    return [
        {name: row[name] for name in ("key", "label", "label_ids")}
        for part in sorted(Path(config.output).glob("*.parquet"))
        for row in pq.read_table(part).to_pylist()
    ]


def class_folders(folder: Path) -> Path:
    """Pictures red/0.png, blue/1.png and loose.png."""
    for name in ("red/0.png", "blue/1.png", "loose.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), "red").save(folder / name)
    return folder


@pytest.mark.parametrize("from_list", [False, True])
def test_c32_rows_have_the_labels_of_class_folders(tmp_path: Path, from_list: bool) -> None:
    photos = class_folders(tmp_path / "sorted")
    (tmp_path / "list.txt").write_text("red/0.png\nloose.png\nblue/1.png\n")
    listed = {"list_file": tmp_path / "list.txt", "mode": "manifest"} if from_list else {}
    partition_dataset(photos, partitions=1, output=tmp_path / "d", labels="folders", **listed)  # type: ignore[arg-type]
    assert rows_of(tmp_path, data_dir=str(tmp_path / "d")) == [
        {"key": "blue/1.png", "label": 0, "label_ids": None},
        {"key": "loose.png", "label": None, "label_ids": None},
        {"key": "red/0.png", "label": 1, "label_ids": None},
    ]
    assert read_json(tmp_path / "d" / "dataset.json")["labels"] == {"from": "folders", "classes": [[0, "blue"], [1, "red"]]}


def test_c32_rows_have_the_labels_of_a_plain_folder(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "sorted")
    (tmp_path / "labels.csv").write_text("file,label\nblue/1.png,817\n0.png,3\n")
    labels = [row["label"] for row in rows_of(tmp_path, data_dir=str(photos), labels=str(tmp_path / "labels.csv"))]
    assert labels == [817, None, 3]
    partition_dataset(photos, partitions=1, output=tmp_path / "d")
    with pytest.raises(UsageError, match="--labels is for a plain folder: give it to partition_dataset"):
        open_dataset(tmp_path / "d", labels="folders")


def test_c32_rows_have_the_categories_and_the_label_of_annotations(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "sorted")
    names = ["red/0.png", "blue/1.png", "loose.png"]
    annotations = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
        "annotations": [
            {"image_id": 0, "category_id": 44},
            {"image_id": 1, "category_id": 7},
            {"image_id": 1, "category_id": 44},
        ],
        "categories": [{"id": 44, "name": "red"}, {"id": 7, "name": "blue"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(annotations))
    said: list[str] = []
    options = {"annotations": tmp_path / "instances.json", "labels": "annotations", "output": tmp_path / "d"}
    logged(said, partial(partition_dataset, photos, partitions=1, **options))  # type: ignore[arg-type]
    assert "labels of 1 picture with exactly one category; 2 without a label" in said
    assert rows_of(tmp_path, data_dir=str(tmp_path / "d")) == [
        {"key": "blue/1.png", "label": None, "label_ids": [7, 44]},
        {"key": "loose.png", "label": None, "label_ids": []},
        {"key": "red/0.png", "label": 1, "label_ids": [44]},
    ]


def test_c32_without_the_option_records_are_what_they_were(tmp_path: Path) -> None:
    """The hashes identify jobs that have begun: a default must not change them."""
    photos = class_folders(tmp_path / "sorted")
    plain = partition_dataset(photos, partitions=1, output=tmp_path / "d")
    assert all(record.label is None for record in plain.partitions[0].manifest.records())
    assert "labels" not in read_json(tmp_path / "d" / "dataset.json")
    assert open_dataset(photos).partitions[0].manifest.content_hash == plain.partitions[0].manifest.content_hash
    labelled = partition_dataset(photos, partitions=1, output=tmp_path / "e", labels="folders")
    assert labelled.content_hash != plain.content_hash
    names = dict(enumerate(sorted(path.name for path in photos.iterdir() if path.is_dir())))
    assert (plain.label_classes, labelled.label_classes) == ({}, names)
    assert open_dataset(photos, labels="folders").label_classes == names
    with pytest.raises(UsageError, match="--labels annotations takes the categories of --annotations FILE"):
        partition_dataset(photos, output=tmp_path / "f", labels="annotations")


def test_c38_a_file_of_another_program_becomes_records(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "sorted")
    annotations = {
        "images": [
            {"id": "a", "file_name": "red\\0.png"},
            {"id": "b", "coco_url": "http://host/set/1.png"},
            {"id": "c", "coco_url": "http://host/set/1.png"},
        ],
        "annotations": [
            {"image_id": "b", "category_id": "9"},
            {"image_id": "c", "category_id": "2"},
            {"image_id": "a", "caption": "red"},
            {"image_id": "a", "category_id": None},
        ],
    }
    (tmp_path / "wild.json").write_text(json.dumps(annotations))
    said: list[str] = []
    options = {"annotations": tmp_path / "wild.json", "output": tmp_path / "d"}
    dataset = logged(said, partial(partition_dataset, photos, partitions=1, **options))  # type: ignore[arg-type]
    found = [(record.key, record.category_ids) for record in dataset.partitions[0].manifest.records()]
    assert found == [(b"blue/1.png", (2, 9)), (b"red/0.png", ())]
    assert "united 1 image with the other images of the same file: one record, with the categories of all" in said
    assert "2 annotations without a category" in said


def test_c39_no_image_of_the_annotations_is_there(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "sorted")
    (tmp_path / "other.json").write_text(json.dumps({"images": [{"id": 1, "file_name": "C:\\img\\gone .jpg"}]}))
    with pytest.raises(UsageError, match=r"none of its 1 images is in .*; the first is 'C:.*gone \.jpg'"):
        partition_dataset(photos, annotations=tmp_path / "other.json", output=tmp_path / "d")


@pytest.fixture
def deep_place(tmp_path: Path) -> Iterator[Path]:
    """A folder that is removed at once: pytest cannot remove 1,100 folders one inside the other."""
    yield tmp_path
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


@pytest.mark.parametrize("mode", ["symlink", "hardlink", "copy", "manifest"])
@pytest.mark.parametrize("by", ["annotations", "list_file"])
def test_a_missing_picture_of_any_name_is_one_error_row(deep_place: Path, mode: str, by: str) -> None:
    write_photos(deep_place / "photos", 1)
    deep = "n/" * 1100 + "x.jpg"  # os.makedirs calls itself for each folder
    names = ["000-black.png", deep, *(["n" * 300 + ".jpg"] if by == "annotations" else [])]
    given = deep_place / "given"
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    given.write_text("\n".join(names) if by == "list_file" else json.dumps({"images": images}))
    options: dict[str, Any] = {"output": deep_place / "parts", "mode": mode, by: given}
    for partitions in (2, 2, 1):  # the second run looks at what there is, the third one removes it
        made = partition_dataset(deep_place / "photos", partitions=partitions, **options)
        assert [made.num_records, len(made.partitions)] == [len(names), partitions]
    config = config_of(deep_place, data_dir=str(deep_place / "parts"), engine="inline")
    assert launch(config).exit_code == 3
    found = {row["key"]: row["stage"] for row in read_results(config.output).table(["key", "stage"]).to_pylist()}
    assert found == {name: None if name == "000-black.png" else "read" for name in names}
    assert not list((deep_place / "parts").glob("_tmp*"))


def test_a_path_too_long_for_its_partition_is_refused_and_nothing_is_left(deep_place: Path) -> None:
    folder = os.open(deep_place, os.O_RDONLY)
    write_photos(deep_place / "photos", 1)
    there = deep_place / "photos"
    while len(str(there)) < 4000:
        there = there / ("d" * 60)
        there.mkdir()
    (there / "x.png").write_bytes((deep_place / "photos" / "000-black.png").read_bytes())
    output = deep_place / ("o" * 100) / "parts"
    with pytest.raises(RunError, match=r"x\.png in a partition is too long: give a shorter --output, or --mode manifest$"):
        partition_dataset(deep_place / "photos", output=output, partitions=1)
    assert sorted(os.listdir(folder)) == ["photos"]
    os.close(folder)
    assert partition_dataset(deep_place / "photos", output=output, mode="manifest").num_records == 2
