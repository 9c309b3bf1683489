"""Lists with columns: CSV, JSON Lines and Parquet files with the path of a picture in each row, and perhaps its label.

Names of columns say which are meant, as in tables of labels (label_table.py). The rows are read a block at a time.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from bulkinfer.errors import UsageError, first_line
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.sources.label_table import LABELS, NAMES, NO_LABEL, TableError, name_and_label
from bulkinfer.records.sources.labels import class_numbers
from bulkinfer.records.sources.table_columns import class_names_of, label_column, name_column
from bulkinfer.types import key_text

_CSV, _JSON, _PARQUET = (".csv", ".tsv"), (".jsonl", ".ndjson"), (".parquet", ".parq")
_HEAD_BYTES = 1 << 16  # of a CSV file, that show its columns
_BLOCK_BYTES = 8 << 20
_LINES = 1 << 16  # of JSON in a block
_LONGEST_LINE = 1 << 20  # bytes
_DAMAGE = (pa.ArrowException, csv.Error, ValueError, OSError, KeyError)

Wanted = tuple[str, str]  # names of the columns of paths and of labels that the user gave; empty: not given


class Rows(NamedTuple):
    """Some rows: their paths, and their labels as text, null for none; `labels` is None if the list has no such column."""

    paths: pa.BinaryArray
    labels: pa.BinaryArray | None


def is_table(name: str) -> bool:
    """Whether a list is one with columns, by the name of its file."""
    return name.lower().endswith((*_CSV, *_JSON, *_PARQUET))


def table_rows(file: Any, name: str, shown: str, wanted: Wanted) -> Iterator[tuple[int, Rows]]:
    """The rows of an open list in order, and the number of the line before them; `name` is that of the file.

    Raises UsageError, which names the file as `shown`, if it is damaged, or has no column of paths.
    """
    kinds = ((_CSV, _csv_rows), (_JSON, _json_rows), (_PARQUET, _parquet_rows))
    read = next(read for ends, read in kinds if name.lower().endswith(ends))
    try:
        yield from read(file, shown, wanted)
    except TableError as error:
        raise UsageError(f"--list_file: {shown}: {error}") from None
    except _DAMAGE as error:
        raise UsageError(f"--list_file: {shown} cannot be read ({first_line(error)}): correct it, or write it again") from None


def as_lines(rows: Rows, before: int, shown: str) -> bytes:
    """The paths of some rows as lines of a list of paths. Raises UsageError for a row without one."""
    empty = pc.fill_null(pc.equal(pc.binary_length(rows.paths), 0), True)
    broken = pc.fill_null(pc.match_substring_regex(rows.paths, r"[\n\x00]"), False)
    for wrong, what in ((empty, "has no path"), (broken, "has a path with a line break or a zero byte")):
        if pc.any(wrong).as_py():
            number = before + 1 + int(np.flatnonzero(wrong)[0])
            raise UsageError(f"--list_file: {shown} line {number} {what}: correct that")
    paths = pc.replace_substring_regex(rows.paths, r"^#", "./#")  # a line that begins so would be a comment
    return b"".join(path + b"\n" for path in paths.to_pylist())


class RowLabels:
    """Collects the labels of rows, as codes of distinct texts."""

    def __init__(self) -> None:
        self._codes: list[Any] = []
        self._names: dict[bytes, int] = {}

    def add(self, labels: pa.BinaryArray) -> None:
        """The labels of the next rows."""
        distinct = labels.dictionary_encode()
        values = [None if name in NO_LABEL else name for name in distinct.dictionary.to_pylist()]
        numbers = [-1 if name is None else self._names.setdefault(name, len(self._names)) for name in values]
        places = distinct.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        self._codes.append(np.array([*numbers, -1], np.int64)[places])

    def __bool__(self) -> bool:
        return bool(self._codes)

    def numbered(self, shown: str) -> tuple[Any, list[list[Any]]]:
        """The number of the class of each row, -1 for none, and the number and name of each class."""
        numbers = class_numbers(self._names, shown)
        of_code = np.array([*(numbers[name] for name in self._names), -1], np.int64)
        classes = [[number, key_text(name)] for name, number in sorted(numbers.items(), key=lambda item: item[1])]
        return of_code[np.concatenate(self._codes or [np.zeros(0, np.int64)])], classes


def _csv_rows(file: Any, _shown: str, wanted: Wanted) -> Iterator[tuple[int, Rows]]:
    head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    file.seek(0)
    lines = [line for line in io.StringIO(head) if line.strip()]
    if not lines:
        raise TableError("it has no lines")
    delimiter = next((mark for mark in "\t,;" if mark in lines[0]), ",")
    first, *others = csv.reader(lines if len(lines) == 1 or len(head) < _HEAD_BYTES else lines[:-1], delimiter=delimiter)
    path, label, has_header = _csv_columns([cell.strip() for cell in first], others, wanted)
    columns = [f"f{number}" for number in (path, label) if number is not None]
    reader = pa_csv.open_csv(
        file,
        pa_csv.ReadOptions(autogenerate_column_names=True, block_size=_BLOCK_BYTES),
        pa_csv.ParseOptions(delimiter=delimiter),
        pa_csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(columns, pa.binary())),
    )
    before = int(has_header)  # the first line is read with the others: it says how many columns each of them has
    for number, batch in enumerate(reader):
        rows = batch.slice(before) if number == 0 else batch
        yield before, Rows(rows.column(0), rows.column(1) if rows.num_columns > 1 else None)
        before += len(rows)


def _csv_columns(first: Sequence[str], others: Sequence[list[str]], wanted: Wanted) -> tuple[int, int | None, bool]:
    """The columns of paths and of labels, and whether the first line has the names of the columns."""
    lower = [cell.lower() for cell in first]
    if any(wanted):
        for name, flag in zip(wanted, ("--image_column", "--label_column"), strict=True):
            if name and name not in first:
                raise TableError(f"{flag}: it has no column {name}; its columns are {', '.join(first)}")
        path = first.index(wanted[0]) if wanted[0] else _known(lower, NAMES)
        label = first.index(wanted[1]) if wanted[1] else _known(lower, LABELS)
        if path is None:
            raise TableError(f"which of its columns {', '.join(first)} has the paths is not clear: give it as --image_column")
        return path, label, True
    path = _known(lower, NAMES)
    if len(first) == 1 or (path is not None and _known(lower, LABELS) is None):
        return path or 0, None, path is not None
    return name_and_label(lower, others)


def _known(names: Sequence[str], known: frozenset[str]) -> int | None:
    return next((number for number, name in enumerate(names) if name in known), None)


def _json_rows(file: Any, _shown: str, wanted: Wanted) -> Iterator[tuple[int, Rows]]:
    path, label = wanted
    held: list[tuple[str, str | None]] = []
    before = number = 0
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
        if len(line) == _LONGEST_LINE:
            raise TableError(f"line {number} has {_LONGEST_LINE:,} bytes or more")
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise TableError(f"line {number} is no JSON") from None
        if isinstance(value, dict) and not (path and label) and not before and not held:
            path, label = path or _key_of(value, NAMES), label or _key_of(value, LABELS)
        held.append(_json_row(value, path, label, number))
        if len(held) == _LINES:
            yield before, _as_rows(held, label)
            before, held = number, []
    if held:
        yield before, _as_rows(held, label)
    elif not before:
        raise TableError("it has no lines")


def _key_of(value: dict[str, Any], known: frozenset[str]) -> str:
    return next((key for key in value if key.lower() in known), "")


def _json_row(value: Any, path: str, label: str, number: int) -> tuple[str, str | None]:
    if isinstance(value, str):
        return value, None
    if not isinstance(value, dict) or not isinstance(value.get(path), str):
        raise TableError(f"line {number} has no path of a picture: it is called file_name, or as --image_column says")
    found = value.get(label)
    if not isinstance(found, (str, int, type(None))) or isinstance(found, bool):
        raise TableError(f"line {number} has a label that is neither a number nor a text")
    return value[path], None if found is None else str(found)


def _as_rows(held: Sequence[tuple[str, str | None]], label: str) -> Rows:
    paths = pa.array([path.encode("utf-8", "surrogateescape") for path, _ in held], pa.binary())
    labels = [None if text is None else text.encode("utf-8", "surrogateescape") for _, text in held]
    return Rows(paths, pa.array(labels, pa.binary()) if label else None)


def _parquet_rows(file: Any, shown: str, wanted: Wanted) -> Iterator[tuple[int, Rows]]:
    parquet = BoundedParquet(file, use_threads=False)
    schema = parquet.schema
    path = name_column(schema, shown, wanted[0])
    label = label_column(schema, shown, wanted[1])
    names = class_names_of(schema, label)
    before = 0
    for group in range(parquet.metadata.num_row_groups):
        table = parquet.read([path, *([label] if label else [])], [group]).combine_chunks()
        labels = _texts(table[label], names) if label else None
        yield before, Rows(_one(table[path].cast(pa.binary())), labels)
        before += len(table)


def _texts(values: pa.ChunkedArray, names: Sequence[str]) -> pa.Array:
    """Labels as text: names of classes for their numbers, where the file has them."""
    if names and pa.types.is_integer(values.type):
        in_range = pc.and_(pc.greater_equal(values, 0), pc.less(values, len(names)))
        values = pa.array(names, pa.string()).take(pc.if_else(in_range, values, None))
    return _one(values.cast(pa.string()).cast(pa.binary()))


def _one(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
