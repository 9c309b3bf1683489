"""datasets/archives.py and boxes.py: the same samples as class folders, whichever archives hold them; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bulkinfer.datasets import detect, read_dataset
from bulkinfer.datasets.boxes import BOXES_FILE, BoxTable
from bulkinfer.datasets.types import FilePictures
from bulkinfer.errors import UsageError
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.tf_example import example_class
from bulkinfer.records.sources.tfrecord import frame_of

from tests.archives import picture_table, spread, write_arrow, write_parquet, write_tar, write_tfrecord, write_zip
from tests.data_sets import write_files
from tests.logged import logged

CLASSES = ("ant", "bee", "cat")
TRAIN = {f"{name}/{n}.jpg": f"{name} {n}".encode() for name in CLASSES for n in range(4)}
VALID = {f"{name}/v{n}.jpg": f"valid {name} {n}".encode() for name in CLASSES[1:] for n in range(2)}
LABELS = {name: CLASSES.index(name[:3]) for name in (*TRAIN, *VALID)}


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, kind: str) -> Path:
    """The two splits, spread over archives in an order that says nothing."""
    for word, files in (("train", TRAIN), ("validation", VALID)):
        mixed = dict(sorted(files.items(), key=lambda item: item[1][::-1]))
        for number, part in enumerate(spread(mixed, 3)):
            name = f"{word}-{number:05d}-of-00003"
            if kind == "tfrecord":
                texts = {key: key[:3] for key in part}
                write_tfrecord(folder / name, part, {key: LABELS[key] + 1 for key in part}, texts)
            elif kind == "zip":
                write_zip(folder / f"{name}.zip", part, LABELS)
            elif kind == "parquet":
                write_parquet(folder / f"{name}.parquet", picture_table(part, LABELS, CLASSES))
            elif kind == "arrow":
                write_arrow(folder / f"{name}.arrow", picture_table(part, LABELS, CLASSES), is_stream=True)
            else:
                write_tar(folder / f"{name}.tar", part, LABELS if kind == "tar" else None)
    if kind in ("tar", "zip"):
        (folder / "labels.txt").write_text("\n".join(CLASSES))
    return folder


def read(folder: Path, split: str = "train", **options: Any) -> tuple[FilePictures, list[str]]:
    said: list[str] = []
    found = logged(said, read_dataset, "folder", folder, split, **options)
    assert isinstance(found, FilePictures)
    return found, said


def refused(folder: Path, split: str = "train") -> str:
    with pytest.raises(UsageError) as error:
        read(folder, split)
    return str(error.value)


def samples(found: FilePictures) -> list[tuple[bytes, int]]:
    return [(read_place(found.places[n], 1000), int(found.labels[n])) for n in range(len(found))]


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "tar_of_folders", "zip", "parquet", "arrow"])
@pytest.mark.parametrize("split", ["train", "valid"])
def test_samples_are_those_of_class_folders(tmp_path: Path, kind: str, split: str) -> None:
    write_files(tmp_path / "folder", {f"train/{name}": data for name, data in TRAIN.items()})
    write_files(tmp_path / "folder", {f"val/{name}": data for name, data in VALID.items()})
    expected, _ = read(tmp_path / "folder", split)
    folder = write(tmp_path / "archives", kind)
    found, said = read(folder, split)
    assert detect(folder) == "folder"
    assert (samples(found), found.class_names) == (samples(expected), expected.class_names)
    assert [line for line in said if line.startswith("labels")] == (
        ["labels 1 to 3 of the archives are the classes 0 to 2: their first class is 1"]
        * (kind == "tfrecord" and split == "train")
    )


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        ("train/a.tar", "val/a.tar"), ("train/0.tar", "validation/0.tar"), ("imagenet-train-000.tar", "imagenet_val_000.tar"),
        ("flowers_train.tar", "flowers_test.tar"), ("x.train.tar", "x.valid.tar"),
    ],
)  # fmt: skip
def test_names_say_the_split(tmp_path: Path, train: str, valid: str) -> None:
    write_tar(tmp_path / train, TRAIN)
    write_tar(tmp_path / valid, VALID)
    write_tar(tmp_path / "notes.tar", {"x.jpg": b"x"})
    assert (len(read(tmp_path)[0]), len(read(tmp_path, "valid")[0])) == (len(TRAIN), len(VALID))


def test_test_pictures_serve_if_there_are_no_others(tmp_path: Path) -> None:
    write_tar(tmp_path / "val.tar", VALID)
    write_tar(tmp_path / "test.tar", TRAIN)
    assert len(read(tmp_path, "valid")[0]) == len(VALID)


def test_what_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "train.tar", TRAIN)
    assert refused(tmp_path, "valid") == (
        f"{tmp_path} has no archives called validation: call them validation-..., or put them into {tmp_path}/validation"
    )
    write_tar(tmp_path / "val.tar", {"x.jpg": b"x", **VALID})
    assert refused(tmp_path, "valid") == f"1 picture in {tmp_path} without a class: val.tar/x.jpg"
    write_tar(tmp_path / "val.tar", VALID, {"bee/v0.jpg": 0})
    assert refused(tmp_path, "valid").endswith("without a class: val.tar/bee/v1.jpg, val.tar/cat/v0.jpg, val.tar/cat/v1.jpg")
    (tmp_path / "val.tar").unlink()
    write_tar(tmp_path / "train-00001-of-00002.tar", TRAIN)
    assert "train-00000-of-00002.tar is missing" in refused(tmp_path)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"damaged", "the record does not match its checksum"),
        (b"", "the record has no image/encoded"),
    ],
)
def test_a_record_that_holds_no_picture_is_named(tmp_path: Path, record: bytes, reason: str) -> None:
    """Without it, training would use another data set."""
    path = write_tfrecord(tmp_path / "train-00000-of-00001", {"a.jpg": b"abc"}, {"a.jpg": 1})
    size = path.stat().st_size
    frame = frame_of(record)
    with path.open("ab") as file:
        file.write(frame[:-1] + bytes([frame[-1] ^ 1]) if record else frame)
    name = "train-00000-of-00001"
    where = f"{reason}, at byte {size} of {name}"
    assert refused(tmp_path) == f"{name}/00000001 in {tmp_path} is no picture ({where}): fetch that archive again"


def test_columns_of_tables(tmp_path: Path) -> None:
    """Two columns of bytes, and labels that are called like nothing that is known."""
    for word, files in (("train", TRAIN), ("validation", VALID)):
        of_class = [CLASSES[LABELS[name]] for name in files]
        columns = {"file_name": list(files), "mask": [b"mask"] * len(files), "scan": list(files.values()), "kind": of_class}
        write_parquet(tmp_path / "data" / f"{word}.parquet", pa.table(columns))
    assert "--image_column" in refused(tmp_path / "data")
    for split, files in (("train", TRAIN), ("valid", VALID)):
        found, _ = read(tmp_path / "data", split, columns=("scan", "kind"))
        expected = [(data, LABELS[name]) for name, data in sorted(files.items(), key=lambda item: (LABELS[item[0]], item[0]))]
        assert (samples(found), found.class_names) == (expected, tuple(CLASSES))


@pytest.mark.parametrize("kind", ["tar", "folders"])
def test_columns_are_refused_where_there_are_none(tmp_path: Path, kind: str) -> None:
    if kind == "tar":
        write(tmp_path, kind)
    else:
        (tmp_path / "train" / "cat").mkdir(parents=True)
        (tmp_path / "train" / "cat" / "1.jpg").touch()
    with pytest.raises(UsageError, match=r"^--label_column is for files with columns .*: leave it out$"):
        read(tmp_path, columns=("", "kind"))


def boxes_of(found: FilePictures) -> list[list[list[float]]]:
    assert found.boxes is not None
    return [np.round(found.boxes[n].astype(np.float64), 4).tolist() for n in range(len(found))]


def test_boxes_in_a_file(tmp_path: Path) -> None:
    """By the base names of pictures, in class folders and in archives."""
    lines = "0.jpg,0.1,0.2,0.3,0.4\nother.jpg,0,0,1,1\n2.jpg,0.5,0.5,1,1\n0.jpg,0,0,0.5,0.5\n\n"
    expected = [[[0.1, 0.2, 0.3, 0.4], [0, 0, 0.5, 0.5]], [], [[0.5, 0.5, 1, 1]], []] * 3
    for kind in ("folder", "tar"):
        folder = tmp_path / kind
        if kind == "folder":
            write_files(folder, {f"train/{name}": data for name, data in TRAIN.items()})
        else:
            write(folder, kind)
        with pytest.raises(UsageError, match=r"has no boxes: records with image/object/bbox/\*, or imagenet_2012_bounding"):
            read(folder, with_boxes=True)
        (folder / BOXES_FILE).write_text(lines)
        assert boxes_of(read(folder, with_boxes=True)[0]) == expected
        assert read(folder)[0].boxes is None
        (folder / BOXES_FILE).write_text("0.jpg,0.1,0.2,0.3\n")
        with pytest.raises(UsageError, match=r"bounding_boxes\.csv line 1: 0\.jpg,0\.1,0\.2,0\.3 is no name with four numbers"):
            read(folder, with_boxes=True)


def test_boxes_in_records(tmp_path: Path) -> None:
    records = []
    for label, boxes in ((1, [(0.1, 0.2, 0.3, 0.4), (0, 0, 1, 1)]), (2, [])):
        example = example_class()()
        feature = example.features.feature
        feature["image/encoded"].bytes_list.value.append(b"x")
        feature["image/class/label"].int64_list.value.append(label)
        for place, side in enumerate(("xmin", "ymin", "xmax", "ymax")):
            feature[f"image/object/bbox/{side}"].float_list.value.extend(box[place] for box in boxes)
        records.append(frame_of(example.SerializeToString()))
    (tmp_path / "train.tfrecord").write_bytes(b"".join(records))
    assert boxes_of(read(tmp_path, with_boxes=True)[0]) == [[[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]], []]


def test_a_data_set_in_memory_has_no_boxes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--use_boxes is for pictures in class folders and archives, and digits has no boxes"):
        read_dataset("digits", tmp_path, "train", with_boxes=True)


def test_a_table_of_boxes() -> None:
    table = BoxTable.of([(), (1, 2, 3, 4, 5, 6, 7, 8), ()])
    assert [table[n].tolist() for n in range(3)] == [[], [[1, 2, 3, 4], [5, 6, 7, 8]], []]
