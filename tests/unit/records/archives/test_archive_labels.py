"""archive_labels.py: which class a label of an archive is, with and without labels.txt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.archives.archive_index import open_index
from bulkinfer.records.archives.archive_labels import ArchiveLabels, read_labels

from tests.archives import write_tar, write_tfrecord


def labels(folder: Path, name: str) -> tuple[ArchiveLabels, list[int | None]]:
    """The labels of one archive: what was decided, and the column."""
    index = open_index(os.fsencode(folder), [name.encode()])
    found = read_labels(index)
    (block,) = index.lines.blocks(["label", "class_name"], 0, len(index.lines))
    return found, found.column(block).to_pylist()


def tar(folder: Path, *values: object) -> str:
    write_tar(folder / "x.tar", {f"{n}.jpg": b"x" for n in range(len(values))},
              {f"{n}.jpg": value for n, value in enumerate(values) if value is not None})  # fmt: skip
    return "x.tar"


def records(folder: Path, *values: int | None, texts: tuple[str, ...] = ()) -> str:
    names = [f"{n}.jpg" for n in range(len(values))]
    numbers = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    write_tfrecord(folder / "x.tfrecord", dict.fromkeys(names, b"x"), numbers, dict(zip(names, texts, strict=False)))
    return "x.tfrecord"


def test_labels_of_a_tar_file_are_classes_from_0(tmp_path: Path) -> None:
    found, column = labels(tmp_path, tar(tmp_path, 2, None, 1, 2))
    assert (column, found.class_names, found.line) == ([2, None, 1, 2], ("0", "1", "2"), "")


def test_names_of_classes_are_numbered_in_their_order(tmp_path: Path) -> None:
    found, column = labels(tmp_path, tar(tmp_path, "dog", "Cat", None, "dog"))
    assert (column, found.class_names) == ([1, 0, None, 1], ("Cat", "dog"))
    (tmp_path / "labels.txt").write_text("bird\ndog\nCat\n")
    found, column = labels(tmp_path, "x.tar")
    assert (column, found.class_names) == ([1, 2, None, 1], ("bird", "dog", "Cat"))
    (tmp_path / "labels.txt").write_text("dog\n")
    with pytest.raises(UsageError, match=r"^x\.tar/1\.jpg in .* has the class Cat, and labels\.txt there has 1 classes"):
        labels(tmp_path, "x.tar")


@pytest.mark.parametrize(
    ("values", "texts", "lines", "first"),
    [
        ((1, 2, 3), (), None, 1),  # 1 to N
        ((1, 3), (), None, 0),  # a gap: nothing says so
        ((0, 1, 2), (), None, 0),
        ((5, 1000), ("n01440764", "n01443537"), None, 1),  # ImageNet
        ((5, 9), ("dog", "cat"), None, 0),
        ((1, 2), (), ["a", "b"], 1),  # as many lines as the largest label
        ((1, 2), (), ["a", "b", "c"], 0),
        ((1, 2), ("a", "b"), ["a", "b", "c"], 1),  # the names decide
        ((1, 2), ("b", "c"), ["a", "b", "c"], 0),
        ((1, 2), (), ["0:background", "1:a", "2:b"], 0),  # numbers before the names
        ((0, 2), ("a", "b"), ["a", "b", "c"], 0),  # a label 0 decides before all else
    ],
)
def test_the_first_class_of_tfrecords(
    tmp_path: Path, values: tuple[int, ...], texts: tuple[str, ...], lines: list[str] | None, first: int
) -> None:
    if lines is not None:
        (tmp_path / "labels.txt").write_text("\n".join(lines) + "\n")
    found, column = labels(tmp_path, records(tmp_path, *values, texts=texts))
    assert (found.first, column) == (first, [value - first for value in values])
    assert bool(found.line) == bool(first)
    if lines is not None and ":" not in lines[0]:
        assert found.class_names == tuple(lines)
    elif texts:
        assert [found.class_names[label] for label in column] == list(texts)


def test_what_was_decided_is_said(tmp_path: Path) -> None:
    found, _ = labels(tmp_path, records(tmp_path, 1, 2, 2))
    assert found.line == "labels 1 to 2 of the archives are the classes 0 to 1: their first class is 1"


def test_a_label_that_labels_txt_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\n")
    with pytest.raises(UsageError, match=r"^x\.tar/1\.jpg in .* has label 2, and labels\.txt there has 2 classes: correct"):
        labels(tmp_path, tar(tmp_path, 0, 2))


def test_pictures_without_labels(tmp_path: Path) -> None:
    found, column = labels(tmp_path, tar(tmp_path, None, None))
    assert (column, found.class_names) == ([None, None], ())


def test_a_file_of_labels_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"labels\.txt cannot be read \(it is no text\): it has the name of one class on each"):
        labels(tmp_path, tar(tmp_path, 0))
    (tmp_path / "labels.txt").write_bytes(b"\n")
    assert labels(tmp_path, "x.tar")[0].class_names == ("0",)
