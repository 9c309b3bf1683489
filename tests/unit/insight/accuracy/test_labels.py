"""Labels by key: folders, tables and COCO annotations, one part after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.insight.accuracy.labels import Labels, open_labels
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.results.reader import read_results

from tests.made_jobs import write_job

UNKNOWN = ClassNames(())
KEYS = [b"val/images/val_0.JPEG", b"val/images/val_1.JPEG", b"val/images/val_2.JPEG"]


@dataclass
class Rows:
    """Stands for Results: tables of rows, and what _job.json says of the classes of their labels."""

    found: list[pa.Table]
    described: object
    output = Path("out")

    def tables(self, columns: tuple[str, ...]) -> Iterator[pa.Table]:
        return (table.select(list(columns)) for table in self.found)

    @property
    def job(self) -> dict[str, object]:
        return {} if self.described is None else {"label_classes": self.described}


def labels_of(tmp_path: Path, text: str, keys: list[bytes] = KEYS, name: str = "labels.csv") -> tuple[list, Labels]:
    """The label of each key, and what was opened."""
    (tmp_path / name).write_text(text)
    output = write_job(tmp_path / "out", keys, [[0]] * len(keys), part_rows=2, config={"data_dir": str(tmp_path)})
    found = open_labels(str(tmp_path / name), read_results(output), UNKNOWN)
    return [label for rows in read_results(output).tables() for label in found.of(rows)], found


def test_folders() -> None:
    keys = ["cat/a/1.jpg", "1.jpg", "\\xff/1.jpg", "a.tar/dog/1.jpg", "a.tar/1.jpg", "data/b.zip/dog/1.jpg"]
    rows = pa.table({"key": keys, "key_bytes": pa.array([None, None, b"\xff/1.jpg", None, None, None], pa.binary())})
    for word in ("folder", "folders"):
        found = open_labels(word, None, UNKNOWN)  # type: ignore[arg-type]
        assert found.of(rows) == [("cat",), (), ("\\xff",), ("dog",), (), ("dog",)]


@pytest.mark.parametrize(
    ("described", "network", "expected"),
    [
        ([[0, "cat"], [1, "dog"]], ClassNames(("dog", "cat")), [("cat",), (), ("dog",)]),
        ([[0, "cat"], [1, "dog"]], UNKNOWN, [("0",), (), ("1",)]),
        (None, ClassNames(("dog", "cat")), [("0",), (), ("1",)]),
    ],
)
def test_labels_in_the_rows(tmp_path: Path, described: object, network: ClassNames, expected: list) -> None:
    rows = pa.table({"label": pa.array([0, None, 1], pa.int32())})
    found = open_labels("", Rows([rows], described), network)  # type: ignore[arg-type]
    assert found.of(rows) == expected
    assert found.columns == ("label",)
    assert found.source.endswith("as numbers of classes") == (expected[0] == ("0",))


def test_rows_without_labels_need_the_option(tmp_path: Path) -> None:
    output = write_job(tmp_path / "out", KEYS, [[0]] * 3)
    with pytest.raises(UsageError, match=r"no labels given, and the rows of .*out have none: use --labels folder, or "):
        open_labels("", read_results(output), UNKNOWN)


def test_val_annotations_of_tiny_imagenet(tmp_path: Path) -> None:
    text = "val_0.JPEG\tn03444034\t0\t32\t44\t62\nval_1.JPEG\tn04067472\t52\t55\t57\t59\nval_9.JPEG\tn04067472\t1\t1\t1\t1\n"
    found, opened = labels_of(tmp_path, text, name="val_annotations.txt")
    assert found == [("n03444034",), ("n04067472",), ()]
    assert opened.without_row() == 1


@pytest.mark.parametrize(
    "text",
    [
        'key,class\n"val/images/val_0.JPEG","tabby, tabby cat"\nval/images/val_1.JPEG,dog\n',
        'file,label\nval_0.JPEG,"tabby, tabby cat"\nval_1.JPEG,dog\n',
        '"width","class_name","file"\n64,"tabby, tabby cat",/data/val/images/val_0.JPEG\n64,dog,images/val_1.JPEG\n',
        'file,id\nval_0,"tabby, tabby cat"\nimages/val_1,dog\n',
        'file,class\nimages\\val_0.JPEG,"tabby, tabby cat"\nval_1.JPEG,dog\n',
    ],
)
def test_tables(tmp_path: Path, text: str) -> None:
    found, _ = labels_of(tmp_path, text)
    assert found == [("tabby, tabby cat",), ("dog",), ()]


def test_a_name_that_is_a_key_belongs_to_no_other(tmp_path: Path) -> None:
    found, _ = labels_of(tmp_path, "file,label\n1.jpg,red\n", [b"thumbs/1.jpg", b"2.jpg", b"1.jpg"])
    assert found == [(), (), ("red",)]


def test_other_folders_of_one_name_do_not_match(tmp_path: Path) -> None:
    found, _ = labels_of(tmp_path, "file,label\ntrain/1.jpg,red\n", [b"val/1.jpg"])
    assert found == [()]


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        ("file,label\n1.jpg,red\n", [b"a/1.jpg", b"b/1.jpg"], "1.jpg could be a/1.jpg or b/1.jpg: give the names"),
        ("file,label\nb/1.jpg,red\na/b/1.jpg,lime\n", [b"x/a/b/1.jpg"], "x/a/b/1.jpg could be b/1.jpg or a/b/1.jpg"),
        ("one\n", [b"1.jpg"], "is not a table of file names and labels"),
    ],
)
def test_what_is_not_clear_is_refused(tmp_path: Path, text: str, keys: list[bytes], message: str) -> None:
    with pytest.raises(UsageError, match=f"^--labels: .*{message}"):
        labels_of(tmp_path, text, keys)


def test_coco(tmp_path: Path) -> None:
    content = {
        "images": [{"id": n, "file_name": f"val_{n}.JPEG"} for n in range(3)],
        "annotations": [{"image_id": i, "category_id": c} for i, c in ((0, 9), (0, 4), (1, 4))],
        "categories": [{"id": 4, "name": "dog"}, {"id": 9, "name": "cat"}],
    }
    found, _ = labels_of(tmp_path, json.dumps(content), name="coco.json")
    assert found == [("dog", "cat"), ("dog",), ()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"images": []}', "has no categories: give an"),
        ("[]", "is not a COCO file"),
    ],
)
def test_other_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^--labels: .*{message}"):
        labels_of(tmp_path, text, name="coco.json")


def test_a_folder_of_pictures_is_no_file_of_labels(tmp_path: Path) -> None:
    output = write_job(tmp_path / "out", [b"a"], [[0]])
    with pytest.raises(UsageError, match="is a folder: for labels from the folders of the keys, type --labels folder"):
        open_labels(str(tmp_path), read_results(output), UNKNOWN)
