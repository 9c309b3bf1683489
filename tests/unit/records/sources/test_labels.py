"""labels.py and label_table.py: which number the class of a picture gets, from folders and from tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.sources.folder import Picture, Scan
from bulkinfer.records.sources.label_table import read_label_table
from bulkinfer.records.sources.labels import find_labels, named_classes
from hypothesis import given
from hypothesis import strategies as st


def scan(*keys: str) -> Scan:
    return Scan(b"/nowhere", [Picture(key.encode(), 10) for key in sorted(keys)])


def labels(wanted: str, *keys: str) -> dict[str, int | None]:
    found = find_labels(wanted, scan(*keys))
    return {key: found.of(key.encode()) for key in keys}


def table(folder: Path, text: str | bytes) -> str:
    path = folder / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_c32_class_folders_are_numbered_by_name() -> None:
    assert labels("folders", "dog/1.jpg", "cat/deep/2.jpg", "loose.jpg") == {
        "dog/1.jpg": 1,
        "cat/deep/2.jpg": 0,
        "loose.jpg": None,
    }
    assert find_labels("folder", scan("dog/1.jpg")).facts == find_labels("folders", scan("dog/1.jpg")).facts
    found = find_labels("folders", scan("dog/1.jpg", "cat/2.jpg", "loose.jpg"))
    assert found.facts == {"from": "folders", "classes": [[0, "cat"], [1, "dog"]]}
    assert found.lines == ("labels of 2 pictures in 2 classes; 1 without a label",)


def test_c32_folders_named_by_numbers_keep_them() -> None:
    assert labels("folders", "7/a.jpg", "10/b.jpg") == {"7/a.jpg": 7, "10/b.jpg": 10}
    assert labels("folders", "7/a.jpg", f"{1 << 31}/b.jpg") == {"7/a.jpg": 1, f"{1 << 31}/b.jpg": 0}
    assert labels("folders", "7/a.jpg", f"{'9' * 200}/b.jpg") == {"7/a.jpg": 0, f"{'9' * 200}/b.jpg": 1}
    with pytest.raises(UsageError, match="07 and 7 in /nowhere are the same number"):
        labels("folders", "7/a.jpg", "07/b.jpg")


def test_c32_folders_that_are_no_classes_are_refused() -> None:
    with pytest.raises(UsageError, match="no picture of /nowhere lies in a class folder"):
        labels("folders", "a.jpg")
    with pytest.raises(UsageError, match=r"\(train, val\) are parts of a data set, not classes: .* --data_dir /nowhere/train"):
        labels("folders", "train/cat/a.jpg", "val/cat/b.jpg")


@pytest.mark.parametrize(
    "text",
    [
        "a.jpg,cat\nb.jpg,dog\n",
        "\ufeffFilename,Label\r\na.jpg,cat\r\nb.jpg,dog\r\n",
        "label;file\ncat;a.jpg\ndog;b.jpg\n",
        "a.jpg\tcat\t0\t0\t62\t62\nb.jpg\tdog\t1\t1\t2\t2\n",
        "a.jpg cat\n\nb.jpg  dog",
        "ImageId,PredictionString\na,cat 85 1 499 272\nb,dog 1 2 3 4 dog 5 6 7 8\n",
        "picture_of,what\na.jpg,cat\nb.jpg,dog\n",
        "size,image,class\n10,a.jpg,cat\n20,b.jpg,dog\n",
        '"sub\\a.jpg","cat"\nb.jpg,dog\nabsent.jpg,dog\n',
        "a.jpg,cat\na.jpg,cat\nb.jpg,dog\nc.jpg,\nd.jpg,-1\n",
    ],
)
def test_c32_tables_as_other_programs_write_them(tmp_path: Path, text: str) -> None:
    keys = ("sub/a.jpg", "b.jpg", "c.jpg")
    assert labels(table(tmp_path, text), *keys) == {"sub/a.jpg": 0, "b.jpg": 1, "c.jpg": None}


def test_c32_labels_that_are_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    assert labels(table(tmp_path, "name,y\na.jpg,65\nb.jpg,970\n"), "a.jpg", "b.jpg") == {"a.jpg": 65, "b.jpg": 970}
    assert labels(table(tmp_path, "my picture.jpg 65\n"), "my picture.jpg") == {"my picture.jpg": 65}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it has no lines"),
        ("490\n361\n", "line 1 has 1 column: write a name and a label"),
        ("a.jpg,cat\nb.jpg\n", "line 2 has 1 column"),
        ("a.jpg,cat\na.jpg,dog\n", r"a\.jpg is cat and, in line 2, dog"),
        ("a.jpg,-1\n", "it has no labels"),
        ("image,x,y1\na.jpg,1,2\n", "which of its columns image, x, y1 are meant is not clear"),
        (b"a\0b,cat\n", "it is no text"),
        ("z.jpg,cat\n", r"names no picture of /nowhere; its first name is 'z\.jpg'"),
        ("1,cat\n01,dog\n", "names no picture"),
        ("a.jpg,7\nb.jpg,07\n", "07 and 7 in .*labels.csv are the same number"),
        ("same,cat\n", r"same could be x/same\.jpg or y/same\.png: write the whole file name"),
    ],
)
def test_c32_tables_that_are_refused(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^--labels: .*{sentence}"):
        labels(table(tmp_path, text), "a.jpg", "b.jpg", "x/same.jpg", "y/same.png")


@pytest.mark.parametrize("name", ["train/0001.jpg", "train\\0001.jpg", "/old/train/0001.jpg", "train/0001"])
def test_c32_a_name_in_another_folder_labels_nothing(tmp_path: Path, name: str) -> None:
    path = table(tmp_path, f"0002.jpg,dog\n{name},cat\nval/0003.jpg,dog\nold/deep/0004.jpg,cat\n")
    keys = ("val/0001.jpg", "val/0002.jpg", "val/0003.jpg", "new/deep/0004.jpg")
    assert labels(path, *keys) == {"val/0001.jpg": None, "val/0002.jpg": 1, "val/0003.jpg": 1, "new/deep/0004.jpg": 0}
    (line,) = [line for line in find_labels(path, scan(*keys)).lines if "folders differ" in line]
    assert line.startswith(f"not matched, since the folders differ: 1 name of {path}, for example ")
    assert line.endswith(", which is not val/0001.jpg")
    with pytest.raises(UsageError, match=r"names no picture of .* the folders differ: 1 name of .* which is not val/0001\.jpg"):
        labels(table(tmp_path, f"{name},cat\n"), "val/0001.jpg")
    assert labels(table(tmp_path, f"{name},cat\n"), "0001.jpg") == {"0001.jpg": 0}  # it lies in no folder


@pytest.mark.parametrize("first", ["a.jpg,class", "A.JPG,cat", "a.jpg cat", "a.jpg,cat,name", "sub/a.jpg;y"])
def test_c32_a_first_line_with_a_picture_is_no_header(tmp_path: Path, first: str, caplog: pytest.LogCaptureFixture) -> None:
    mark = next(mark for mark in ",; " if mark in first)
    caplog.set_level("INFO")
    found = labels(table(tmp_path, f"{first}\nb.jpg{mark}7\nc.jpg{mark}8\n"), first.partition(mark)[0], "b.jpg")
    assert None not in found.values()
    assert "line 1" not in caplog.text


@pytest.mark.parametrize("first", ["file,label", "what,which"])
def test_c32_names_of_columns_are_told(tmp_path: Path, first: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert labels(table(tmp_path, f"{first}\na.jpg,7\n"), "a.jpg") == {"a.jpg": 7}
    assert "labels.csv: line 1 was taken as names of columns" in caplog.text


def test_c32_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        labels(str(tmp_path / "no.csv"), "a.jpg")
    with pytest.raises(UsageError, match="is a folder: for labels from the class folders, type --labels folder"):
        labels(str(tmp_path), "a.jpg")


@given(
    st.binary(max_size=40) | st.lists(st.sampled_from([b"a.jpg", b",", b"\n", b"\t", b'"', b"7", b" ", b"\xe9"])).map(b"".join)
)
def test_c32_any_bytes_are_taken_or_get_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    sentence = "--labels: "
    try:
        labels(table(tmp_path_factory.mktemp("t"), data), "a.jpg", "7")
    except UsageError as error:
        sentence = str(error)
    assert sentence.startswith("--labels: ")


def test_lines_without_a_label_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bulkinfer")
    path = table(tmp_path, "file,label\na.jpg,2\nb.jpg,-1\nc.jpg,\n")
    assert read_label_table(Path(path), "--labels").labels == {b"a.jpg": b"2"}
    assert f"{path}: 2 lines without a label (it is empty or -1)" in caplog.text


@pytest.mark.parametrize("listed", [None, 3, [[0]], [["0", "cat"]], [[0, "cat", 1]], {"0": "cat"}])
def test_classes_that_are_no_list_of_numbers_and_names(listed: object) -> None:
    assert named_classes(listed) == {}
    assert named_classes([[0, "cat"], (7, "dog")]) == {0: "cat", 7: "dog"}
