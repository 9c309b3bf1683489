"""export_rows.py and formats/: what other programs read, compared with the rows themselves."""

from __future__ import annotations

import csv
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.insight.export_rows import Written, export_rows
from bulkinfer.insight.options import RowsConfig
from bulkinfer.insight.rows_format import FORMATS
from bulkinfer.launch.launcher import launch
from bulkinfer.records.sources.folder import counted
from bulkinfer.results.reader import read_results

from tests.launches import config_of
from tests.made_jobs import without_classes, write_job
from tests.pictures import write_files
from tests.shown_job import LATIN, NUM_ERRORS, NUM_OK, ODD, finished_job
from tests.temporaries import temporary_name


def written(output: Path, folder: Path, **options: Any) -> Written:
    return export_rows(read_results(output), RowsConfig(**{"to": str(folder / "rows"), **options}))


def rows_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_results(output).table().to_pylist()
    return rows


def ok_rows_of(output: Path) -> list[dict[str, Any]]:
    return [row for row in rows_of(output) if row["status"] == "ok"]


def same_float(text: Any, value: float) -> bool:
    return bool(np.float32(text) == np.float32(value))


def test_csv(shown: Path, tmp_path: Path) -> None:
    assert written(shown, tmp_path).num_rows == NUM_OK + NUM_ERRORS
    with (tmp_path / "rows").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    names = [f"{name}_{rank}" for rank in range(1, 6) for name in ("class", "label", "score")]
    assert list(found[0]) == ["key", "status", *names, "stage", "error"]
    for row, expected in zip(found, rows_of(shown), strict=True):
        assert (row["key"], row["status"]) == (expected["key"], expected["status"])
        assert (row["stage"], row["error"]) == (expected["stage"] or "", expected["error"] or "")
        for rank in range(5):
            if expected["status"] == "error":
                assert row[f"class_{rank + 1}"] == row[f"label_{rank + 1}"] == row[f"score_{rank + 1}"] == ""
            else:
                assert row[f"class_{rank + 1}"] == str(expected["class_ids"][rank])
                assert row[f"label_{rank + 1}"] == expected["class_names"][rank]
                assert same_float(row[f"score_{rank + 1}"], expected["scores"][rank])
    assert {ODD, "latin-\\xe9.png"} <= {row["key"] for row in found}
    assert b"\0" not in (tmp_path / "rows").read_bytes()


def test_jsonl(shown: Path, tmp_path: Path) -> None:
    written(shown, tmp_path, format="jsonl", top_k=2)
    found = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert len(found) == NUM_OK + NUM_ERRORS
    for row, expected in zip(found, rows_of(shown), strict=True):
        ids = expected["class_ids"] or [None, None]
        assert (row["key"], row["status"], row["stage"], row["error"]) == tuple(
            expected[name] for name in ("key", "status", "stage", "error")
        )
        assert [row["class_1"], row["class_2"]] == ids[:2]
        assert "class_3" not in row
    grey = next(row for row in found if row["key"] == "grey.png")
    assert grey["score_1"] == pytest.approx(0.125, abs=2e-3)
    assert len(str(grey["score_1"])) < 12, "no digits that a float32 does not hold"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_npy(tmp_path: Path, precision: str) -> None:
    output = finished_job(tmp_path, save_precision=precision)
    found = written(output, tmp_path, format="npy")
    assert found.beside == tmp_path / "rows.keys.txt"
    values = np.load(tmp_path / "rows", mmap_mode="r", allow_pickle=False)
    assert (values.shape, values.dtype) == ((NUM_OK, 3), np.dtype(np.float16 if precision == "fp16" else np.float32))
    expected = ok_rows_of(output)
    np.testing.assert_array_equal(values, np.array([row["embedding"] for row in expected], values.dtype))
    keys = found.beside.read_text().splitlines()
    assert keys == [row["key"].replace("\n", "\\n") for row in expected]


def test_npy_whose_first_part_holds_error_rows_only(tmp_path: Path) -> None:
    config = config_of(tmp_path, save=("embedding",), batches_per_step=1, engine="inline")
    write_files(Path(config.data_dir), {f"000-{number}.jpg": b"not a picture" for number in range(4)})
    launch(config)
    results = read_results(tmp_path / "out")
    assert set(next(results.tables())["status"].to_pylist()) == {"error"}
    written(tmp_path / "out", tmp_path, format="npy")
    values = np.load(tmp_path / "rows", allow_pickle=False)
    np.testing.assert_array_equal(values, [row["embedding"] for row in ok_rows_of(tmp_path / "out")])


def test_npy_of_a_column_that_was_not_saved(shown: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="saved no output 'logits': there are embedding"):
        written(shown, tmp_path, format="npy", column="logits")
    assert list(tmp_path.iterdir()) == []


def test_coco(shown: Path, tmp_path: Path) -> None:
    assert written(shown, tmp_path, format="coco").num_rows == NUM_OK
    found, expected = json.loads((tmp_path / "rows").read_text()), ok_rows_of(shown)
    assert [image["id"] for image in found["images"]] == list(range(1, NUM_OK + 1))
    assert [image["file_name"] for image in found["images"]] == [row["key"] for row in expected]
    assert {(image["width"], image["height"]) for image in found["images"]} == {(40, 40)}
    annotations = found["annotations"]
    assert [one["id"] for one in annotations] == list(range(1, 5 * NUM_OK + 1))
    for number, row in enumerate(expected):
        mine = [one for one in annotations if one["image_id"] == number + 1]
        assert [one["category_id"] for one in mine] == row["class_ids"]
        assert all(same_float(one["score"], score) for one, score in zip(mine, row["scores"], strict=True))
    names = {one["id"]: one["name"] for one in found["categories"]}
    assert names == dict(pair for row in expected for pair in zip(row["class_ids"], row["class_names"], strict=True))


def test_label_studio(shown: Path, tmp_path: Path) -> None:
    written(shown, tmp_path, format="label_studio", prefix="http://host/")
    tasks, expected = json.loads((tmp_path / "rows").read_text()), ok_rows_of(shown)
    assert [task["data"]["key"] for task in tasks] == [row["key"] for row in expected]
    for task, row in zip(tasks, expected, strict=True):
        (prediction,) = task["predictions"]
        assert prediction["result"] == [
            {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": row["class_names"][:1]}}
        ]
        assert same_float(prediction["score"], row["scores"][0])
        name = unquote_to_bytes(task["data"]["image"].removeprefix("http://host/"))
        assert name == (row["key_bytes"] or row["key"].encode())
    assert any(unquote_to_bytes(task["data"]["image"]).endswith(LATIN) for task in tasks)
    view = ElementTree.parse(tmp_path / "rows.interface.xml").getroot()
    image, choices = view
    assert (view.tag, image.tag, image.attrib) == ("View", "Image", {"name": "image", "value": "$image"})
    assert (choices.tag, choices.attrib) == ("Choices", {"name": "choice", "toName": "image"})
    assert [choice.attrib["value"] for choice in choices] == sorted({row["class_names"][0] for row in expected})


def test_label_studio_takes_no_score_beyond_one(tmp_path: Path) -> None:
    scores = [[1.0], [1.5], [-0.1], [0.0]]
    write_job(tmp_path / "out", [b"%d.png" % i for i in range(4)], [[0]] * 4, scores, names=())
    written(tmp_path / "out", tmp_path, format="label_studio")
    tasks = json.loads((tmp_path / "rows").read_text())
    assert [task["predictions"][0]["score"] for task in tasks] == [1.0, None, None, 0.0]


def test_fiftyone(shown: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(shown, tmp_path, format="fiftyone")
    labels, rows = json.loads((tmp_path / "rows").read_text())["labels"], ok_rows_of(shown)
    expected = [row for row in rows if row["key_bytes"] is None and "\\" not in row["key"]]
    assert f"left out {counted(len(rows) - len(expected), 'row')}, the first of which is latin-\\xe9.png: " in caplog.text
    assert list(labels) == [row["key"].removesuffix(".png") for row in expected]
    assert [label["label"] for label in labels.values()] == [row["class_names"][0] for row in expected]
    assert all(same_float(label["confidence"], row["scores"][0]) for label, row in zip(labels.values(), expected, strict=True))


@pytest.mark.parametrize("rows_per_file", [1, 3, 4, 16, 100])
def test_parquet(shown: Path, tmp_path: Path, rows_per_file: int) -> None:
    written(shown, tmp_path, format="parquet", rows_per_file=rows_per_file)
    files, total = sorted((tmp_path / "rows").iterdir()), NUM_OK + NUM_ERRORS
    sizes = [pq.read_metadata(path).num_rows for path in files]
    assert sizes == [min(rows_per_file, total - start) for start in range(0, total, rows_per_file)]
    assert pq.read_table(tmp_path / "rows").to_pylist() == rows_of(shown)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


@pytest.mark.parametrize("comes_back", [True, False])
def test_parquet_files_that_cannot_be_replaced_stay(
    shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    written(shown, tmp_path, format="parquet")
    before, rename, final = tree(tmp_path / "rows"), Path.rename, tmp_path / "rows"
    failures = [OSError(errno.EIO, "Input/output error")] * (1 if comes_back else 2)

    def failing(self: Path, target: Path) -> Path:
        if target == final and failures:
            raise failures.pop()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError if comes_back else RunError) as raised:
        written(shown, tmp_path, format="parquet", overwrite=True, rows_per_file=1)
    (there,) = tmp_path.iterdir()
    assert tree(there) == before
    assert (there == final) is comes_back
    if not comes_back:
        assert f"its files are left in {there} (Input/output error): move that folder to {final}" in str(raised.value)


def test_parquet_files_of_before_that_cannot_be_removed_are_named(
    shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(shown, tmp_path, format="parquet")

    def failing(path: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(shutil, "rmtree", failing)
    with pytest.raises(RunError, match=r"rows is complete, but the files before are left in .*_tmp-.*: remove that folder"):
        written(shown, tmp_path, format="parquet", overwrite=True, rows_per_file=1)
    assert len(list((tmp_path / "rows").iterdir())) == NUM_OK + NUM_ERRORS


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_there_is_replaced_only_if_that_is_asked(shown: Path, tmp_path: Path, format: str) -> None:
    written(shown, tmp_path, format=format)
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="exists: give another place with --to, or --overwrite"):
        written(shown, tmp_path, format=format)
    written(shown, tmp_path, format=format, overwrite=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("format", FORMATS)
def test_folders_that_are_missing_are_made_and_stay_only_with_what_was_written(
    shown: Path, tmp_path: Path, format: str
) -> None:
    written(shown, tmp_path, format=format, to=str(tmp_path / "a" / "b" / "rows"))
    assert (tmp_path / "a" / "b" / "rows").exists()
    if format == "npy":
        with pytest.raises(UsageError):
            written(shown, tmp_path, format=format, to=str(tmp_path / "c" / "d" / "rows"), column="no")
        assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("format", ["csv", "jsonl", "coco", "label_studio", "fiftyone"])
def test_text_to_stdout(shown: Path, tmp_path: Path, format: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    written(shown, tmp_path, format=format)
    capfdbinary.readouterr()
    assert written(shown, tmp_path, format=format, to="-").num_rows > 0
    assert capfdbinary.readouterr().out == (tmp_path / "rows").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} <= {"rows", "rows.interface.xml"}, "stdout has nothing beside it"


def test_stdout_leaves_the_working_folder_alone(
    shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (abandoned := tmp_path / temporary_name("abc")).touch()
    monkeypatch.chdir(tmp_path)
    written(shown, tmp_path, to="-")
    assert list(tmp_path.iterdir()) == [abandoned]
    assert capfdbinary.readouterr().out.startswith(b"key,status,")
    written(shown, tmp_path, to="rows")
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_part_leaves_nothing(tmp_path: Path, format: str) -> None:
    output = finished_job(tmp_path)
    part = sorted(output.iterdir())[-1]
    part.write_bytes(part.read_bytes()[:-9])
    place = tmp_path / "here"
    place.mkdir()
    with pytest.raises(RunError, match="is damaged"):
        written(output, place, format=format)
    assert list(place.iterdir()) == []


def test_places_that_cannot_be(shown: Path, tmp_path: Path) -> None:
    results, config = read_results(shown), RowsConfig(to="x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    for options, message in (
        ({"to": str(shown / "rows.csv")}, "lies among the rows of the job: give another place"),
        ({"to": str(tmp_path / "file" / "rows.csv")}, "file is not a folder: give another folder"),
        ({"to": str(tmp_path / "folder"), "overwrite": True}, "is a folder: give the name of a file in it"),
        ({"to": str(tmp_path / "file"), "format": "parquet", "overwrite": True}, "is a file: give a folder"),
        ({"to": "-", "format": "npy"}, "--to -: --format npy is no text for stdout: give a file"),
        ({"to": "-", "format": "parquet"}, "--to -: --format parquet is no text for stdout: give a folder"),
        ({"to": str(tmp_path / "folder"), "format": "parquet", "overwrite": True}, "mine.txt was not written by this command"),
    ):
        with pytest.raises(UsageError, match=message):
            export_rows(results, replace(config, **options))
    with pytest.raises(UsageError, match="--to FILE is missing"):
        RowsConfig()


@pytest.mark.parametrize("format", ["coco", "label_studio", "fiftyone"])
def test_formats_of_classes_refuse_a_job_without_them_alike(tmp_path: Path, format: str) -> None:
    output = without_classes(tmp_path / "out")
    sentence = "out keeps no best classes: to save topk, run: infer_launch "
    with pytest.raises(UsageError, match=sentence):
        written(output, tmp_path, format=format)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["out"]
