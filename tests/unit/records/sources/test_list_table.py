"""list_table.py: lists with columns, through read_list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.sources import list_table
from bulkinfer.records.sources.list_file import Listing, read_list

from tests.archives import picture_table


def listing(path: Path, *columns: str) -> Listing:
    return read_list(path, os.fsencode(path.parent), b"/out", (*columns, "", "")[:2])  # type: ignore[arg-type]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def found(path: Path, *columns: str) -> dict[str, int] | list[str]:
    """Label by key, -1 for none; or the keys, where there are no labels."""
    listed = listing(path, *columns)
    keys = [os.fsdecode(key) for key in listed.all_keys()]
    return keys if listed.labels is None else dict(zip(keys, listed.labels.tolist(), strict=True))


def refusal(path: Path, *columns: str) -> str:
    with pytest.raises(UsageError) as caught:
        listing(path, *columns)
    return str(caught.value).removeprefix(f"--list_file: {path} ").removeprefix(f"--list_file: {path}: ")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "file,label\nb.jpg,1\na.jpg,0\n", {"a.jpg": 0, "b.jpg": 1}),
        ("a.csv", "b.jpg,dog\na.jpg,cat\nc.jpg,\n", {"a.jpg": 0, "b.jpg": 1, "c.jpg": -1}),
        ("a.csv", '\ufefflabel;width;Image_Path\n7;3;"a;b.jpg"\n9;3;#c.jpg\n', {"#c.jpg": 9, "a;b.jpg": 7}),
        ("a.tsv", "path\tclass\na b.jpg\tcat\r\n", {"a b.jpg": 0}),
        ("a.csv", "path,width\na.jpg,3\n", ["a.jpg"]),
        ("a.csv", "path\na.jpg\nb.jpg\n", ["a.jpg", "b.jpg"]),
        ("a.csv", "a.jpg\nb.jpg\n", ["a.jpg", "b.jpg"]),
        (
            "a.jsonl",
            '{"file_name": "b.jpg", "label": "dog"}\n{"label": null, "file_name": "a.jpg"}\n',
            {"a.jpg": -1, "b.jpg": 0},
        ),
        ("a.jsonl", '{"path": "a.jpg", "y": 3}\n\n{"path": "b.jpg", "y": 2}\n\n', {"a.jpg": 3, "b.jpg": 2}),
        ("a.ndjson", '"b.jpg"\n"a.jpg"\n', ["a.jpg", "b.jpg"]),
        ("a.jsonl", '{"path": "a.jpg", "w": 1}', ["a.jpg"]),
    ],
)
def test_each_form(tmp_path: Path, name: str, content: str, expected: Any) -> None:
    assert found(write(tmp_path / name, content)) == expected


def test_names_that_are_not_text(tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.csv", b"file,label\ncaf\xe9.jpg,1\n")) == {"caf\udce9.jpg": 1}
    assert found(write(tmp_path / "a.jsonl", '{"file": "caf\\udce9.jpg"}\n')) == ["caf\udce9.jpg"]


def test_a_parquet_file_of_paths(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3], "path": ["b.jpg", "a.jpg", "c.jpg"], "y": [5, None, -1]}), path, row_group_size=2)
    assert found(path) == {"a.jpg": -1, "b.jpg": 5, "c.jpg": -1}
    features = picture_table({}, {}, ["cat", "dog"]).schema.metadata
    table = pa.table({"file_name": ["a.jpg", "b.jpg", "c.jpg"], "label": [1, 0, 7]}).replace_schema_metadata(features)
    pq.write_table(table, path)
    assert found(path) == {"a.jpg": 1, "b.jpg": 0, "c.jpg": -1}
    assert listing(path).classes == [[0, "cat"], [1, "dog"]]
    pq.write_table(picture_table({"a.jpg": b"1"}), path)
    assert "image has the pictures themselves, so give the file as --data_dir" in refusal(path)


def test_columns_that_the_user_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "where,kind,label\na.jpg,x,1\n")
    assert found(path, "where", "kind") == {"a.jpg": 0}
    assert found(path, "where") == {"a.jpg": 1}
    assert refusal(path, "nowhere").startswith("--image_column: it has no column nowhere; its columns are where, kind, label")
    assert found(write(tmp_path / "a.jsonl", '{"where": "a.jpg", "kind": 3}\n'), "where", "kind") == {"a.jpg": 3}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "", "it has no lines"),
        ("a.csv", "x,y,z\n1,2,3\n", "which of its columns"),
        ("a.csv", "file,label\na.jpg,1,2\n", "cannot be read (CSV parse error"),
        ("a.csv", "file,la\rbel\na.jpg,1\n", "cannot be read (new-line character seen in unquoted field"),
        ("a.csv", "file,label\n,1\n", "line 2 has no path: correct that"),
        ("a.csv", 'file,label\na.jpg,1\n../b.jpg,1\n', "line 3: ../b.jpg leads out of"),
        ("a.csv", "file,label\na.jpg,1\na.jpg,2\n", "has several labels for a.jpg: leave one of them"),
        ("a.jsonl", "", "it has no lines"),
        ("a.jsonl", '{"path": "a.jpg"}\n{', "line 2 is no JSON"),
        ("a.jsonl", '{"path": "a.jpg"}\n{"file": "b.jpg"}', "line 2 has no path of a picture"),
        ("a.jsonl", '{"path": "a.jpg", "label": [1]}', "line 1 has a label that is neither a number nor a text"),
        ("a.jsonl", '{"path": "a\\nb.jpg"}', "line 1 has a path with a line break or a zero byte: correct that"),
        ("a.jsonl", '{"path": "a\\u0000"}', "line 1 has a path with a line break or a zero byte: correct that"),
        ("a.jsonl", '{"path": "a.jpg"}\n' + "x" * (1 << 20), "line 2 has 1,048,576 bytes or more"),
        ("a.jsonl", "\n \n", "it has no lines"),
        ("a.parquet", "no Parquet", "cannot be read ("),
    ],
)  # fmt: skip
def test_bad_lists(tmp_path: Path, name: str, content: str, expected: str) -> None:
    assert refusal(write(tmp_path / name, content)).startswith(expected)


def test_repeated_rows_with_one_label_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "file,label\nb.jpg,1\na.jpg,0\nb.jpg,1\n")
    assert found(path) == {"a.jpg": 0, "b.jpg": 1}
    assert listing(path).num_repeated == 1


def test_blocks_have_their_own_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are numbered over all blocks."""
    monkeypatch.setattr(list_table, "_LINES", 3)
    lines = [f'{{"file": "{number:02d}.jpg", "label": "c{number * 7 % 5}"}}\n' for number in range(20)]
    assert found(write(tmp_path / "a.jsonl", "".join(lines))) == {f"{number:02d}.jpg": number * 7 % 5 for number in range(20)}
