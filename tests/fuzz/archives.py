"""Archives of pictures, and lists with columns, of any bytes: each is one sentence, error rows, or pictures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.archives import KINDS, kind
from bulkinfer.records.sources.list_file import read_list
from bulkinfer.types import Archive, Member

from tests import pictures
from tests.archives import picture_table, write_arrow, write_parquet, write_tar, write_tfrecord, write_zip

_LISTS = (".csv", ".jsonl", ".parquet")
_MOST_READ = 8  # pictures of an archive
_LIMIT = 1 << 20


def read_archive(data: bytes, path: Path) -> list[str]:
    """List an archive, of the kind that the first byte says, and read its first pictures."""
    name = list(KINDS)[data[0] % len(KINDS)] if data else "tar"
    path.write_bytes(data[1:])
    told = list[str]()
    try:
        with path.open("rb") as file:
            listed = list(kind(name).list_pictures(file, os.fsencode(path), Counter(), ()))
    except UsageError as error:
        return [str(error)]
    found = path.stat()
    archive = Archive(os.fsencode(path), name, found.st_size, found.st_mtime_ns)
    for picture in listed[:_MOST_READ]:
        try:
            read_place(Member(archive, picture.offset, picture.span), _LIMIT)
        except RecordError as error:
            told.append(error.message)
    return told


def read_table(data: bytes, path: Path) -> list[str]:
    """Read a list with columns, of the form that the first byte says."""
    place = path.with_suffix(_LISTS[data[0] % len(_LISTS)] if data else ".csv")
    place.write_bytes(data[1:])
    try:
        read_list(place, os.fsencode(path.parent), b"/out")
    except UsageError as error:
        return [str(error)]
    return []


def archive_seeds(folder: Path) -> list[bytes]:
    """An archive of each kind, and some of other forms."""
    files = {"a/1.jpg": pictures.jpeg(16, 12), "b.jpg": b"x" * 300, "empty.jpg": b""}
    labels = {"a/1.jpg": 0, "b.jpg": 1}
    table = picture_table(files, labels, ["cat", "dog"])
    plain = pa.table({"data": list(files.values()), "file_name": list(files), "class": ["x", "y", "x"]})
    written: list[tuple[str, Callable[[Path], Path]]] = [
        ("tar", lambda path: write_tar(path, files, labels)),
        ("zip", lambda path: write_zip(path, files, labels)),
        ("tfrecord", lambda path: write_tfrecord(path, files, labels)),
        ("parquet", lambda path: write_parquet(path, table)),
        ("parquet", lambda path: write_parquet(path, plain, use_dictionary=False, data_page_version="2.0")),
        ("arrow", lambda path: write_arrow(path, table)),
        ("arrow", lambda path: write_arrow(path, plain, is_stream=True)),
    ]
    return [bytes([list(KINDS).index(name)]) + write(folder / f"seed.{name}").read_bytes() for name, write in written]


def table_seeds(folder: Path) -> list[bytes]:
    """A list of each form."""
    names = pa.table({"path": ["a.jpg", "b.jpg"], "label": [1, 0]})
    texts = (b"file,label\na.jpg,1\nb.jpg,0\n", b'{"path": "a.jpg", "label": "x"}\n{"path": "b.jpg"}\n')
    lists = (*texts, write_parquet(folder / "seed-list.parquet", names).read_bytes())
    return [bytes([number]) + content for number, content in enumerate(lists)]
