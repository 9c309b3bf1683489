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
_OWN = "key_bytes"  # of rows and manifests, for names that are not UTF-8
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
    shown = printable(path)
    leaf = _picture(schema, shown, picture)
    known = label_column(schema, shown, label)
    return Columns(leaf, _names(schema, leaf), (known,) if known else None, class_names_of(schema, known))


def label_column(schema: pa.Schema, shown: str, wanted: str = "") -> str:
    """The column of labels, or the `wanted` one; empty if there is none. Raises UsageError if it has no labels."""
    _require(schema, shown, wanted, "--label_column")
    if wanted and not _is_label(schema, wanted):
        kind = schema.field(wanted).type
        raise UsageError(f"--label_column: {wanted} in {shown} is of type {kind}: give a column of numbers or texts")
    classes = [name for name in _marked(schema, "ClassLabel") if _is_label(schema, name)]
    return wanted or _first(_LABELS, classes) or next(iter(classes), "") or _by_name(schema, _LABELS, _is_label)


def class_names_of(schema: pa.Schema, label: str) -> tuple[str, ...]:
    """The names of the classes by number, where the metadata of the column has them."""
    names = _features(schema).get(label, {}).get("names")
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def name_column(schema: pa.Schema, shown: str, wanted: str = "") -> str:
    """The column of paths in a list of pictures. Raises UsageError, with the columns there are, if it is not known."""
    _require(schema, shown, wanted, "--image_column")
    if not (found := wanted or _by_name(schema, _NAMES, _is_name)):
        holds = next((name for name in schema.names if _bytes_of(schema, name)), "")
        advice = (
            f"{holds} has the pictures themselves, so give the file as --data_dir" if holds else "name one as --image_column"
        )
        raise UsageError(f"--list_file: {shown} has no column of paths; its columns are {_listed(schema)}: {advice}")
    if not _is_name(schema, found):
        raise UsageError(f"--image_column: {found} in {shown} is of type {schema.field(found).type}: give a column of texts")
    return found


def _require(schema: pa.Schema, shown: str, name: str, flag: str) -> None:
    if name and name not in schema.names:
        raise UsageError(f"{flag}: {shown} has no column {name}; its columns are {_listed(schema)}: give one of them")


def _marked(schema: pa.Schema, kind: str) -> list[str]:
    """The columns that Hugging Face's metadata calls one of a kind."""
    features = _features(schema)
    return [name for name in features if features[name].get("_type") == kind and schema.names.count(name) == 1]


def _picture(schema: pa.Schema, shown: str, wanted: str) -> Leaf:
    _require(schema, shown, wanted, "--image_column")
    if wanted and not _bytes_of(schema, wanted):
        kind = schema.field(wanted).type
        raise UsageError(f"--image_column: {wanted} in {shown} is of type {kind}: give one of binary, or struct<bytes, path>")
    by_type = [name for name in schema.names if _bytes_of(schema, name) and name != _OWN]
    if not by_type:
        raise UsageError(
            f"{shown} has no column of pictures (binary, or struct<bytes, path>); its columns are {_listed(schema)}: give "
            "others, or, if a column has the paths of pictures, give this file to partition_dataset --list_file"
        )
    candidates = [name for name in _marked(schema, "Image") if name in by_type] or by_type
    name = wanted or (candidates[0] if len(candidates) == 1 else _first(_PICTURES, candidates))
    if not name:
        names = ", ".join(printable(each.encode()) for each in candidates)
        raise UsageError(f"which column of {shown} has the pictures is not clear: give one of {names} as --image_column")
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
