"""Tables with pictures: which columns have the pictures, their names and their classes.

A column of pictures holds the bytes of picture files, or, as Hugging Face's `datasets` writes it, `struct<bytes, path>`. Its
metadata says which columns are pictures and which are classes (ClassLabel, with the names of the classes); without it names and
types of the columns decide.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bulkinfer.errors import UsageError
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.packed_folder import path_inside
from bulkinfer.types import printable

_PICTURES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp", "image_bytes", "img_bytes", "bytes", "content",
             "data")  # fmt: skip
_NAMES = ("path", "file_name", "filename", "file", "image_path", "img_path", "image_name", "name", "key", "__key__")
_LABELS = ("label", "labels", "class", "cls", "category", "target", "fine_label", "class_name", "label_name", "y", "wnid",
           "synset")  # fmt: skip
_MOST_NAMED = 12  # columns in a message
_DIGITS = 8  # of a picture without a name, at least

Leaf = tuple[str, ...]  # a column, or a field of a column that is a struct


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: of the bytes of pictures, of their names and labels (None: there is none); names of classes."""

    picture: Leaf
    name: Leaf | None = None
    label: Leaf | None = None
    class_names: tuple[str, ...] = ()

    def with_label(self, picture: ListedPicture, value: int | bytes | str | None) -> ListedPicture:
        """A picture with the label in its row: a number, whose name may be known, or the name of a class."""
        if isinstance(value, int):
            name = self.class_names[value] if 0 <= value < len(self.class_names) else ""
            return picture._replace(label=value, class_name=name)
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        return picture._replace(class_name=text or "")


def find_columns(schema: pa.Schema, path: bytes, wanted: Sequence[str] = ()) -> Columns:
    """The columns of the table in the file `path`; `wanted` are those of Archive.columns.

    Raises UsageError, which names the columns of the table, if it has no pictures, or if it is not clear which ones are meant.
    """
    picture, label = (*wanted, "", "")[:2]
    for name, flag in ((picture, "--image_column"), (label, "--label_column")):
        if name and name not in schema.names:
            raise UsageError(f"{flag}: {printable(path)} has no column {name}; its columns are {_listed(schema)}")
    features = _features(schema)
    leaf = _picture(schema, features, path, picture)
    by_type = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel" and _is_label(schema, name)]
    known = label or _first(_LABELS, by_type) or (by_type[0] if by_type else "") or _by_name(schema, _LABELS, _is_label)
    if known and not _is_label(schema, known):
        raise UsageError(
            f"--label_column: {known} in {printable(path)} is of type {schema.field(known).type}: give one of numbers or texts"
        )
    names = features.get(known, {}).get("names") or ()
    class_names = tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()
    return Columns(leaf, _names(schema, leaf), (known,) if known else None, class_names)


def _picture(schema: pa.Schema, features: dict[str, Any], path: bytes, wanted: str) -> Leaf:
    by_type = [name for name in schema.names if _bytes_of(schema, name)]
    if wanted:
        if found := _bytes_of(schema, wanted):
            return found
        kind = schema.field(wanted).type
        raise UsageError(
            f"--image_column: {wanted} in {printable(path)} is of type {kind}, and pictures are binary, or struct<bytes, path>"
        )
    if not by_type:
        raise UsageError(
            f"{printable(path)} has no column of pictures (binary, or struct<bytes, path>); its columns are {_listed(schema)}: "
            "give other files, or, if a column has the paths of pictures, this file to partition_dataset --list_file"
        )
    marked = [name for name in by_type if features.get(name, {}).get("_type") == "Image"]
    candidates = marked or by_type
    name = candidates[0] if len(candidates) == 1 else _first(_PICTURES, candidates)
    if not name:
        raise UsageError(
            f"which column of {printable(path)} has the pictures is not clear: give one of {', '.join(candidates)} as "
            "--image_column"
        )
    return _bytes_of(schema, name)


def _bytes_of(schema: pa.Schema, name: str) -> Leaf:
    """Where the bytes of a column are; empty if it has none."""
    if schema.names.count(name) != 1:
        return ()
    kind = schema.field(name).type
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return (name, "bytes") if index >= 0 and _is_binary(kind.field(index).type) else ()
    return (name,) if _is_binary(kind) else ()


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_label(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_integer(kind)) or _is_text(kind)


def _is_name(schema: pa.Schema, name: str) -> bool:
    return _is_text(schema.field(name).type)


def _names(schema: pa.Schema, picture: Leaf) -> Leaf | None:
    """The column of the names of pictures: `path` beside `bytes`, else one that is called like that."""
    kind = schema.field(picture[0]).type
    if pa.types.is_struct(kind) and (index := kind.get_field_index("path")) >= 0 and _is_text(kind.field(index).type):
        return picture[0], "path"
    found = _by_name(schema, _NAMES, _is_name)
    return (found,) if found else None


def _by_name(schema: pa.Schema, known: Sequence[str], fits: Any) -> str:
    return _first(known, [name for name in schema.names if schema.names.count(name) == 1 and fits(schema, name)])


def _first(known: Sequence[str], names: Sequence[str]) -> str:
    """The first of the known names that is one of `names`, in any case of letters; empty if none is."""
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in known if name in by_lower), "")


def _features(schema: pa.Schema) -> dict[str, Any]:
    """What `datasets` of Hugging Face says of each column."""
    try:
        found = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return {name: feature for name, feature in found.items() if isinstance(feature, dict)} if isinstance(found, dict) else {}


def _listed(schema: pa.Schema) -> str:
    shown = ", ".join(f"{printable(field.name.encode())} ({field.type})" for field in list(schema)[:_MOST_NAMED])
    return f"{shown}, ..." if len(schema) > _MOST_NAMED else shown or "none"


class PictureNames:
    """Names of the pictures of a table: unique paths below their archive. One without a usable name is called by its row."""

    def __init__(self) -> None:
        self._seen = set[bytes]()

    def unique(self, name: str | bytes | None, row: int) -> bytes:
        """The name of the picture in a row."""
        own = b"%0*d" % (_DIGITS, row)
        data = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name or b""
        path = path_inside(data)
        if not path or b"\0" in path or path in self._seen or path.isdigit():
            path = own
        self._seen.add(path)
        return path
