"""Makes the index of a folder of archives: each archive is read once, by several threads; see archive_index.py."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.errors import ObjectError, RunError, UsageError
from bulkinfer.files.atomic import FORMAT, publishing
from bulkinfer.files.guarded import open_regular
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.manifest_file import FileLines, damage_as_run_error
from bulkinfer.records.manifest_rows import ARCHIVE_SCHEMA, ROWS, key_columns
from bulkinfer.records.open_place import open_place
from bulkinfer.records.place import archive_as_json, archive_from_json
from bulkinfer.records.sources.archives import ListedPicture, archive_at, kind
from bulkinfer.records.sources.folder import counted
from bulkinfer.types import Archive, printable, printable_path

log = logging.getLogger("bulkinfer")

INDEX_SCHEMA = pa.schema(
    [
        *(ARCHIVE_SCHEMA.field(name) for name in ("key", "key_bytes", "size_bytes", "label", "archive", "offset", "span")),
        ("class_name", pa.string()),
        ("boxes", pa.list_(pa.float32())),
    ]
)
_CONTENT = b"bulkinfer archive index"
_MOST_LABEL = (1 << 31) - 1  # of int32
_MOST_THREADS = 8
_REPORT_S = 10.0
_MAKE_AGAIN = "remove it, and the next command makes it again"


@dataclass(frozen=True, slots=True)
class Listed:
    """What the index knows of an archive: itself, how many pictures it has, and what else is in it, by kind."""

    archive: Archive
    count: int
    left_out: Counter[str]


def open_file(path: Path) -> tuple[FileLines, list[Listed]] | None:
    """The lines of an index and its archives; None if there is none, or it is damaged or of another version."""
    if not path.is_file():
        return None
    try:
        with damage_as_run_error(path, _MAKE_AGAIN), open_regular(path, error=RunError) as file:
            parquet = BoundedParquet(file, use_threads=False)
            metadata = parquet.metadata.metadata or {}
            if metadata.get(b"content") != _CONTENT or metadata.get(b"format") != str(FORMAT).encode():
                raise ValueError("it is no index of this version")
            archives = metadata[b"archives"]
            if hashlib.sha256(archives).hexdigest().encode() != metadata[b"archives_sha256"]:
                raise ValueError("its list of archives does not match its checksum")
            lines = FileLines(path, file, parquet, _MAKE_AGAIN, keeps_open=True)
            known = [Listed(archive_from_json(archive), count, Counter(left)) for archive, count, left in json.loads(archives)]
            if lines.schema != INDEX_SCHEMA or sum(each.count for each in known) != len(lines):
                raise ValueError("its lines are not those of its archives")
    except (RunError, OSError):  # it is made again
        return None
    return lines, known


def make_index(root: bytes, path: Path, wanted: Sequence[Archive]) -> None:
    """Publish an index of these archives, and of those in the one there that have not changed."""
    opened = open_file(path)
    if opened is None and path.exists():
        log.warning(f"warning: {printable_path(path)} is damaged, or of another version of bulkinfer: it is made again")
    known = {each.archive.path: (each, start) for each, start in _with_starts(opened[1])} if opened else {}
    kept = {name: found for name, found in known.items() if _is_as_listed(root, found[0].archive)}
    asked = {archive.path: archive for archive in wanted}  # a table may be wanted for other columns than before
    kept = {name: found for name, found in kept.items() if asked.get(name, found[0].archive) == found[0].archive}
    new = [archive for archive in wanted if archive.path not in kept]
    log.info(
        f"reading {counted(len(new), 'archive')} in {printable(root)} once, to know where their pictures lie; {path} keeps that"
    )
    names = sorted({*kept, *(archive.path for archive in new)})
    with publishing(path) as temporary, _Writer(temporary) as writer, ThreadPoolExecutor(_MOST_THREADS) as pool:
        try:
            tasks = {archive.path: pool.submit(_list, root, archive) for archive in new}
            reported = time.monotonic()
            for number, name in enumerate(names):
                if name in tasks:
                    table, left_out = tasks.pop(name).result()
                    writer.add(Listed(asked[name], len(table), left_out), [table])
                else:
                    assert opened is not None, "what is kept comes from there"
                    listed, start = kept[name]
                    writer.add(listed, opened[0].blocks(INDEX_SCHEMA.names, start, start + listed.count))
                if time.monotonic() - reported > _REPORT_S:
                    log.info(f"  {number + 1:,} of {len(names):,} archives are read")
                    reported = time.monotonic()
        finally:
            pool.shutdown(cancel_futures=True)


def _with_starts(known: Sequence[Listed]) -> Iterator[tuple[Listed, int]]:
    return zip(known, accumulate((each.count for each in known), initial=0), strict=False)  # one start more: the end


def _is_as_listed(root: bytes, archive: Archive) -> bool:
    try:
        return archive_at(root, archive.path, archive.columns) == archive
    except UsageError:  # it is gone
        return False


class _Writer:
    """Writes an index an archive at a time; its list of archives is written at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._parquet = pq.ParquetWriter(self._file, INDEX_SCHEMA, compression="zstd", write_page_checksum=True)
        self._archives: list[Listed] = []
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._flush(0)
                values = [[archive_as_json(each.archive), each.count, dict(each.left_out)] for each in self._archives]
                archives = json.dumps(values)
                marks = {"content": _CONTENT.decode(), "format": str(FORMAT), "archives": archives}
                self._parquet.add_key_value_metadata(
                    {**marks, "archives_sha256": hashlib.sha256(archives.encode()).hexdigest()}
                )
            self._parquet.close()

    def add(self, listed: Listed, tables: Any) -> None:
        """Add the pictures of the next archive."""
        for table in tables:
            number = pa.array(np.full(len(table), len(self._archives), np.int32))
            self._waiting.append(
                table.set_column(INDEX_SCHEMA.get_field_index("archive"), INDEX_SCHEMA.field("archive"), number)
            )
        self._archives.append(listed)
        self._flush(ROWS)

    def _flush(self, least: int) -> None:
        """Write what waits, if that is enough for a row group: small ones take more memory to read than their lines."""
        if self._waiting and sum(map(len, self._waiting)) >= least:
            self._parquet.write_table(pa.concat_tables(self._waiting), ROWS)
            self._waiting.clear()


def _list(root: bytes, archive: Archive) -> tuple[pa.Table, Counter[str]]:
    """The pictures of an archive as a table with INDEX_SCHEMA, and what else is in it.

    Raises UsageError if it cannot be read.
    """
    path, left_out = os.path.join(root, archive.path), Counter[str]()
    try:
        with open_place(path) as file:
            pictures = list(kind(archive.kind).list_pictures(file, path, left_out, archive.columns))
    except (OSError, ObjectError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise UsageError(f"{printable(path)} cannot be read ({reason}): repair that, or give another folder") from None
    if archive_at(root, archive.path, archive.columns) != archive:
        raise UsageError(f"{printable(path)} changed while it was read: run the command again when nothing writes to it")
    return _table(pictures, archive.path, path), left_out


def _table(pictures: Sequence[ListedPicture], name: bytes, path: bytes) -> pa.Table:
    for picture in pictures:
        if picture.label is not None and not -1 <= picture.label <= _MOST_LABEL:
            raise UsageError(
                f"{printable(path)}: {printable(picture.name)} has label {picture.label}: labels go from 0 to {_MOST_LABEL}"
            )
    keys = key_columns(pa.array([name + b"/" + picture.name for picture in pictures], pa.binary()))
    columns = [
        *keys,
        [picture.size_bytes for picture in pictures],
        [None if picture.label == -1 else picture.label for picture in pictures],
        [0] * len(pictures),
        [None if picture.offset < 0 else picture.offset for picture in pictures],
        [picture.span for picture in pictures],
        [picture.class_name or None for picture in pictures],
        [picture.boxes or None for picture in pictures],
    ]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, INDEX_SCHEMA, strict=True)], INDEX_SCHEMA)
