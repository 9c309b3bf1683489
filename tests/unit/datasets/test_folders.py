"""Class folders: the order of classes, folders that differ, what is left out and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.datasets import read_dataset
from bulkinfer.datasets.types import FilePictures
from bulkinfer.errors import UsageError

from tests.commands import UNPRIVILEGED
from tests.data_sets import write_files
from tests.logged import logged
from tests.pictures import APPLE_DOUBLE


def read(folder: Path, split: str = "train", **options: str) -> tuple[FilePictures, list[str]]:
    said: list[str] = []
    found = logged(said, read_dataset, "folder", folder, split, **options)
    assert isinstance(found, FilePictures)
    return found, said


def refused(folder: Path, split: str = "train", **options: str) -> str:
    with pytest.raises(UsageError) as error:
        read(folder, split, **options)
    return str(error.value)


def paths(found: FilePictures) -> list[bytes]:
    return [found.places[i] for i in range(len(found))]


@pytest.mark.parametrize("valid", ["val", "validation", "valid", "test"])
def test_pictures_by_class_and_name(valid: str, tmp_path: Path) -> None:
    names = ["train/dog/2.png", "train/dog/sub/1.jpg", "train/cat/9.jpg", "train/dog/10.png", f"{valid}/cat/1.jpg"]
    write_files(tmp_path, {**dict.fromkeys(names, b"x"), f"{valid}/dog/readme.txt": b"no picture"})
    found, said = read(tmp_path)
    root = bytes(tmp_path / "train")
    assert paths(found) == [
        root + b"/cat/9.jpg",
        root + b"/dog/10.png",
        root + b"/dog/2.png",
        root + b"/dog/sub/1.jpg",
    ]
    assert found.labels.tolist() == [0, 1, 1, 1]
    assert found.class_names == ("cat", "dog")
    assert not said
    found, said = read(tmp_path, "valid")
    assert paths(found) == [bytes(tmp_path / valid) + b"/cat/1.jpg"]
    assert found.class_names == ("cat", "dog")
    assert [line for line in said if "classes without pictures" in line and line.endswith("dog")]
    assert [line for line in said if "1 file, no pictures" in line]


def test_test_is_validation_only_where_nothing_else_is(tmp_path: Path) -> None:
    write_files(tmp_path, {"val/a/1.jpg": b"x", "test/a/2.jpg": b"x", "test/b/2.jpg": b"x"})
    assert paths(read(tmp_path, "valid")[0]) == [bytes(tmp_path / "val") + b"/a/1.jpg"]
    write_files(tmp_path, {"validation/a/1.jpg": b"x"})
    assert "has val and validation: keep only the one" in refused(tmp_path, "valid")


def test_b56_names_that_are_whole_numbers(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{split}/{number}/x.jpg": b"x" for split in ("train", "val") for number in range(12)})
    found, said = read(tmp_path)
    assert found.class_names == ("0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9")
    assert len(said) == 1
    assert "sorted as text: class 2 is 10, by number it would be 2; --class_order number sorts them so" in said[0]
    found, said = read(tmp_path, "valid", class_order="number")
    assert found.class_names == tuple(map(str, range(12)))
    assert paths(found)[2] == bytes(tmp_path / "val") + b"/2/x.jpg"
    assert found.labels.tolist() == list(range(12))
    assert not said


def test_b56_no_warning_where_both_orders_agree(tmp_path: Path) -> None:
    write_files(tmp_path, {f"train/{number:03}/x.jpg": b"x" for number in range(12)})
    assert read(tmp_path)[1] == []
    assert read(tmp_path, class_order="number")[0].class_names == read(tmp_path)[0].class_names
    assert read(tmp_path, class_order="auto")[1] == []


def test_b56_order_by_number_needs_numbers(tmp_path: Path) -> None:
    write_files(tmp_path, {"train/1/x.jpg": b"x", "train/01/x.jpg": b"x"})
    assert "the class folders 01, 1 of" in refused(tmp_path, class_order="number")
    write_files(tmp_path, {"train/cat/x.jpg": b"x"})
    assert "the class folder cat of" in refused(tmp_path, class_order="number")


@pytest.mark.parametrize("split", ["train", "valid"])
def test_c43_a_class_that_training_lacks_is_named(split: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"train/a/1.jpg": b"x", "train/b/1.jpg": b"x", "val/a/1.jpg": b"x", "val/c/1.jpg": b"x"})
    told = refused(tmp_path, split)
    assert f"{tmp_path}/val has 1 class folder that {tmp_path}/train lacks: c:" in told


def test_c43_a_class_that_validation_lacks_keeps_the_numbers_of_training(tmp_path: Path) -> None:
    write_files(tmp_path, {f"train/{name}/1.jpg": b"x" for name in "abcd"} | {"val/d/1.jpg": b"x", "val/b/1.jpg": b"x"})
    assert read(tmp_path)[1] == []
    found, said = read(tmp_path, "valid")
    assert (found.class_names, found.labels.tolist()) == (("a", "b", "c", "d"), [1, 3])
    assert said == [f"warning: {tmp_path}/val has no folder for 2 of the 4 classes: a, c"]
    found, said = read(tmp_path, "valid", class_order="auto")
    assert (found.class_names, said) == (("b", "d"), []), "by name: its own"


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    assert "has no folder train with" in refused(tmp_path)
    assert "has no folder val or validation or valid or test with" in refused(tmp_path, "valid")
    write_files(tmp_path, {"train/1.jpg": b"x"})
    assert "holds no folders: a folder of pictures for each class is needed" in refused(tmp_path)
    write_files(tmp_path, {"train/a/1.jpg": b"x", "train/b/1.txt": b"x"})
    assert "train has class folders without pictures: b" in refused(tmp_path)


def test_b14_twins_of_macos_and_hidden_folders_are_no_data(tmp_path: Path) -> None:
    files = {"train/a/1.jpg": b"x", "train/a/._1.jpg": APPLE_DOUBLE, "train/.cache/1.jpg": b"x", "train/__MACOSX/a/1.jpg": b"x"}
    found, said = read(write_files(tmp_path, files))
    assert len(found) == 1
    assert found.class_names == ("a",)
    assert said == [f"note: ignored 1 hidden or system files and folders in {tmp_path / 'train'}"]


def test_pictures_beside_the_classes_are_told(tmp_path: Path) -> None:
    _, said = read(write_files(tmp_path, {"train/a/1.jpg": b"x", "train/stray.jpg": b"x"}))
    assert said == [f"note: left out of {tmp_path / 'train'}: 1 file outside the class folders: stray.jpg"]


def test_broken_links_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"train/a/1.jpg": b"x"})
    (tmp_path / "train" / "a" / "2.jpg").symlink_to("gone.jpg")
    assert "are broken links or cannot be reached: a/2.jpg" in refused(tmp_path)


@pytest.mark.parametrize("closed", ["train", "train/a", "train/a/sub"])
def test_unreadable_folders_are_refused(closed: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    write_files(tmp_path, {"train/a/1.jpg": b"x", "train/a/sub/1.jpg": b"x"})
    code = f"""
from pathlib import Path
from bulkinfer.datasets import read_dataset
read_dataset("folder", Path({str(tmp_path)!r}), "train")
"""
    (tmp_path / closed).chmod(0)
    try:
        done = subprocess.run([*UNPRIVILEGED, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        (tmp_path / closed).chmod(0o755)
    told = done.stderr.splitlines()[-1]
    assert told.startswith("bulkinfer.errors.UsageError")
    assert closed.rpartition("/")[2] in told
    assert "Permission denied" in told
