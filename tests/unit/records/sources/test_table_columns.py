"""table_columns.py: which columns of a table have pictures, names and labels."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.table_columns import Columns, PictureNames, find_columns, label_column, name_column

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def schema_of(features: dict[str, object] | None = None, **columns: pa.DataType) -> pa.Schema:
    metadata = {"huggingface": json.dumps({"info": {"features": features}})} if features else None
    return pa.schema(list(columns.items()), metadata)


def found(schema: pa.Schema, *wanted: str) -> Columns:
    return find_columns(schema, b"/data/a.parquet", wanted)


def refusal(schema: pa.Schema, *wanted: str) -> str:
    with pytest.raises(UsageError) as caught:
        found(schema, *wanted)
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"image": IMAGE, "label": pa.int64()}, Columns(("image", "bytes"), ("image", "path"), ("label",))),
        ({"x": pa.binary()}, Columns(("x",))),
        ({"x": pa.large_binary(), "Filename": pa.string()}, Columns(("x",), ("Filename",))),
        ({"mask": pa.binary(), "Image": pa.binary(), "cls": pa.string()}, Columns(("Image",), None, ("cls",))),
        ({"jpg": pa.binary(), "cls": pa.int32(), "__key__": pa.string()}, Columns(("jpg",), ("__key__",), ("cls",))),
        ({"img": pa.struct({"bytes": pa.binary()}), "label": pa.float32()}, Columns(("img", "bytes"))),
        ({"image": pa.list_(pa.binary()), "x": pa.binary_view()}, Columns(("x",))),
        ({"x": pa.binary(), "class": pa.dictionary(pa.int8(), pa.string())}, Columns(("x",), None, ("class",))),
    ],
)
def test_names_and_types_decide(columns: dict[str, pa.DataType], expected: Columns) -> None:
    assert found(schema_of(**columns)) == expected


def test_metadata_of_hugging_face_decides_first() -> None:
    features = {
        "photo_of": {"_type": "Image"}, "kind": {"_type": "ClassLabel", "names": ["cat", "dog"]}, "label": {"_type": "Value"},
    }  # fmt: skip
    schema = schema_of(features, image=pa.binary(), photo_of=IMAGE, label=pa.int64(), kind=pa.int64())
    assert found(schema) == Columns(("photo_of", "bytes"), ("photo_of", "path"), ("kind",), ("cat", "dog"))
    fine = {"coarse_label": {"_type": "ClassLabel", "names": ["a"]}, "fine_label": {"_type": "ClassLabel", "names": ["b"]}}
    assert found(schema_of(fine, img=IMAGE, coarse_label=pa.int64(), fine_label=pa.int64())).label == ("fine_label",)


@pytest.mark.parametrize(
    "metadata", [b"{", b"[]", b'{"info": 1}', b'{"info": {"features": [1]}}', b'{"info": {"features": {"x": 1}}}']
)
def test_damaged_metadata_is_none(metadata: bytes) -> None:
    assert found(pa.schema([("x", pa.binary())], {b"huggingface": metadata})) == Columns(("x",))


def test_what_the_user_names() -> None:
    schema = schema_of(image=pa.binary(), mask=pa.binary(), label=pa.int64(), kind=pa.string(), size=pa.float64())
    assert found(schema, "mask", "") == Columns(("mask",), None, ("label",))
    assert found(schema, "", "kind") == Columns(("image",), None, ("kind",))
    columns = "image (binary), mask (binary), label (int64), kind (string), size (double)"
    assert refusal(schema, "photo", "") == (
        f"--image_column: /data/a.parquet has no column photo; its columns are {columns}: give one of them"
    )
    assert refusal(schema, "", "x").startswith("--label_column: /data/a.parquet has no column x; its columns are image")
    assert refusal(schema, "label", "") == (
        "--image_column: label in /data/a.parquet is of type int64: give one of binary, or struct<bytes, path>"
    )
    assert refusal(schema, "", "size") == (
        "--label_column: size in /data/a.parquet is of type double: give a column of numbers or texts"
    )


def test_tables_without_pictures_or_with_several() -> None:
    assert refusal(schema_of(path=pa.string(), y=pa.int64())) == (
        "/data/a.parquet has no column of pictures (binary, or struct<bytes, path>); its columns are path (string), y (int64): "
        "give others, or, if a column has the paths of pictures, give this file to partition_dataset --list_file"
    )
    assert refusal(schema_of(left=pa.binary(), right=pa.binary())) == (
        "which column of /data/a.parquet has the pictures is not clear: give one of left, right as --image_column"
    )
    assert "c0 (int8), c1 (int8)" in refusal(schema_of(**{f"c{number}": pa.int8() for number in range(40)}))
    assert refusal(schema_of(**{f"c{number}": pa.int8() for number in range(40)})).count("int8") == 12


def test_rows_of_bulkinfer_are_no_pictures() -> None:
    rows = schema_of(key=pa.string(), key_bytes=pa.binary(), label=pa.int32())
    assert "has no column of pictures" in refusal(rows)


def test_columns_of_a_list() -> None:
    schema = schema_of(path=pa.string(), photo=pa.binary(), y=pa.int8())
    assert (name_column(schema, "x"), label_column(schema, "x")) == ("path", "y")
    assert name_column(schema_of(where=pa.string()), "x", "where") == "where"
    without = "--list_file: x has no column of paths; its columns are "
    advice = "data has the pictures themselves, so give the file as --data_dir"
    for given, wanted, expected in (
        (schema_of(data=pa.binary()), "", f"{without}data (binary): {advice}"),
        (schema_of(where=pa.string()), "", f"{without}where (string): name one as --image_column"),
        (schema, "photo", "--image_column: photo in x is of type binary: give a column of texts"),
    ):
        with pytest.raises(UsageError) as caught:
            name_column(given, "x", wanted)
        assert str(caught.value) == expected


def test_labels_of_rows() -> None:
    columns = Columns(("x",), class_names=("cat", "dog"))
    picture = ListedPicture(b"a", 1, 0, 1)
    given = {1: (1, "dog"), 7: (7, ""), -1: (-1, ""), b"bird": (None, "bird"), "bird": (None, "bird"), None: (None, "")}
    for value, expected in given.items():
        labelled = columns.with_label(picture, value)
        assert (labelled.label, labelled.class_name) == expected


def test_names_are_unique_paths() -> None:
    names = PictureNames()
    given = ["a/1.jpg", "../x.jpg", "/y.jpg", "", None, "a/./1.jpg", "00000001", b"b.jpg", "a\0b", ".", "caf\u00e9.jpg"]
    assert [names.unique(name, row) for row, name in enumerate(given)] == [
        b"a/1.jpg", b"x.jpg", b"y.jpg", b"00000003", b"00000004", b"00000005", b"00000006", b"b.jpg", b"00000008", b"00000009",
        "caf\u00e9.jpg".encode(),
    ]  # fmt: skip
