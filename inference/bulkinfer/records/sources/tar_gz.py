"""Tar files that are compressed by gzip, as some shards of WebDataset are.

What lies at a byte of the unpacked tar file is found without unpacking all before it: indexed-gzip notes points at which
unpacking may begin, with the 32 KiB before each. They are found by unpacking the file once, and kept beside the index of the
archives. A block between two points is unpacked at once, and the last ones stay in memory, since the next pictures lie there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bulkinfer.errors import DamagedError, RecordError, UsageError, first_line
from bulkinfer.files.atomic import publishing
from bulkinfer.files.file_in_parts import FileInParts
from bulkinfer.files.guarded import read_bytes
from bulkinfer.host.install_hint import install_command
from bulkinfer.records.kept_files import KEPT, can_be_written, kept_places
from bulkinfer.records.open_place import size_and_time
from bulkinfer.records.page_cache import PageCache
from bulkinfer.records.sources import tar
from bulkinfer.records.sources.archives import ArchiveFile, ListedPicture, PictureReader, check_size
from bulkinfer.types import printable

_LEAST_BLOCK, _MOST_POINTS = 1 << 20, 256  # a point takes 32 KiB
_CACHED_BYTES = 64 << 20  # of unpacked blocks that stay in memory in a process
_MOST_KEPT_BYTES = 1 << 26
_READ_BYTES = 1 << 20  # of the compressed file at once
_CONTENT = "points of a gzip file"
_blocks = PageCache(_CACHED_BYTES, len)


def list_pictures(file: Any, path: bytes, left_out: Counter[str], columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The pictures of an open archive in order; see archives.Kind. Their offsets are those in the unpacked tar file."""
    shown = printable(path)
    try:
        with _unpacked(file, path, size_and_time(path)) as unpacked:
            yield from tar.list_pictures(io.BufferedReader(unpacked, _LEAST_BLOCK), path, left_out, columns)
    except _errors() as error:
        raise UsageError(f"{shown} is no gzip file, is cut off or damaged ({first_line(error)}): fetch it again") from None


def reader(file: ArchiveFile, _columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads pictures out of unpacked blocks; see archives.Kind."""
    archive = file.archive
    state = (archive.size_bytes, archive.mtime_ns)
    block_bytes = _block_bytes(archive.size_bytes)
    with _as_record_error(file):
        unpacked = _unpacked(io.BufferedReader(FileInParts(file.size_bytes, file.read), _READ_BYTES), archive.path, state)

    def block(number: int) -> bytes:
        with _as_record_error(file):
            return bytes(unpacked.pread(block_bytes, number * block_bytes))

    def read(offset: int, span: int, most_bytes: int) -> bytes:
        check_size(span, most_bytes)
        file.read(0, 0)  # raises RecordError if the file has changed, whose blocks may be in memory
        first, last = offset // block_bytes, (offset + max(span, 1) - 1) // block_bytes
        blocks = [_blocks.get((archive, number), partial(block, number)) for number in range(first, last + 1)]
        begin = offset - first * block_bytes
        data = b"".join(blocks)[begin : begin + span] if len(blocks) > 1 else blocks[0][begin : begin + span]
        if len(data) < span:
            raise RecordError("read", f"{file.name} ends before the picture does")
        return data

    return read


@contextmanager
def _as_record_error(file: ArchiveFile) -> Iterator[None]:
    """Turns what indexed-gzip raises into RecordError, with the reason that the file itself gives, if it has one."""
    try:
        yield
    except _errors() as error:
        file.read(0, 1)
        raise RecordError("read", f"{file.name} cannot be unpacked ({first_line(error)})") from None


def _block_bytes(size_bytes: int) -> int:
    """The bytes of a block of the unpacked file, by the size of the compressed one."""
    return max(_LEAST_BLOCK, size_bytes // _MOST_POINTS)


def _unpacked(file: Any, path: bytes, state: tuple[int, int]) -> Any:
    """The archive as a file of its unpacked bytes, with its points; those are made where they are not kept."""
    places = _places(path)
    for place in places:
        if (points := _kept(place, state)) is not None:
            opened = _open(file, state[0])
            opened.import_index(fileobj=io.BytesIO(points))
            return opened
    file.seek(0)
    opened = _open(file, state[0])
    opened.build_full_index()
    if writable := [place for place in places if can_be_written(place)]:
        _keep(writable[0], opened, state)
    return opened


def _open(file: Any, size_bytes: int) -> Any:
    return _package().IndexedGzipFile(
        fileobj=file, buffer_size=_READ_BYTES, readbuf_size=_READ_BYTES, spacing=_block_bytes(size_bytes)
    )


def _places(path: bytes) -> tuple[Path, ...]:
    root, name = os.path.split(path)
    return kept_places(root, f"{KEPT}-{hashlib.sha256(name).hexdigest()[:24]}.points")


def _keep(place: Path, opened: Any, state: tuple[int, int]) -> None:
    content = io.BytesIO()
    opened.export_index(fileobj=content)
    points = content.getvalue()
    facts = {"content": _CONTENT, "state": state, "sha256": hashlib.sha256(points).hexdigest()}
    with publishing(place) as temporary:
        temporary.write_bytes(json.dumps(facts).encode() + b"\n" + points)


def _kept(place: Path, state: tuple[int, int]) -> bytes | None:
    """The points in a file; None if there are none, they are damaged, or the archive was another one."""
    try:
        head, _, points = read_bytes(place, _MOST_KEPT_BYTES).partition(b"\n")
        expected = {"content": _CONTENT, "state": list(state), "sha256": hashlib.sha256(points).hexdigest()}
        return points if json.loads(head) == expected else None
    except (OSError, DamagedError, ValueError):  # they are made again
        return None


def _package() -> Any:
    try:
        import indexed_gzip
    except ModuleNotFoundError:
        raise UsageError(
            f"compressed tar files need the package indexed-gzip, which is not installed: {install_command('targz')}"
        ) from None
    return indexed_gzip


def _errors() -> tuple[type[Exception], ...]:
    """What indexed-gzip raises for damaged files."""
    package = _package()
    return package.ZranError, package.NotCoveredError, EOFError, OSError, ValueError
