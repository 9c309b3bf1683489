"""manifest.parquet as a file: written a block at a time, opened and checked, read a row group at a time."""

from __future__ import annotations

import errno
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.errors import RunError, UnreadableError, UsageError, first_line
from bulkinfer.files.atomic import FORMAT, canonical_json, publishing
from bulkinfer.files.guarded import open_regular
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.layout import MANIFEST_CONTENT
from bulkinfer.records.manifest_rows import ARCHIVE_SCHEMA, ROWS, SCHEMA, Lines, TableLines
from bulkinfer.records.place import is_stored
from bulkinfer.types import printable

_SHORTAGES = ("Failed to launch worker thread", "not enough memory", os.strerror(errno.EAGAIN), os.strerror(errno.ENOMEM))
_ADVICE = "run partition_dataset again"
ARCHIVE_FORMAT = 2  # of a manifest of pictures in archives; earlier versions read FORMAT alone
STORE_FORMAT = 3  # of a manifest of pictures in stores
_MOST_LINES = 1 << 27  # in a row group, which is read at once; write_manifest makes ROWS, earlier versions made a million


def shown(path: Path) -> str:
    """A path for messages."""
    return printable(os.fsencode(path))


class FileLines:
    """The lines of a manifest in its file, which is open only while lines are read, or, with `keeps_open`, as long as they are
    used: then another process may publish a new file in its place.

    The last row group that was read with all columns stays in memory. `blocks` raises RunError if the file is damaged or was
    replaced. The constructor raises ValueError if the row groups do not add up to the number of lines. `advice` says what to do
    about a damaged file.
    """

    def __init__(
        self, path: Path, file: Any, parquet: BoundedParquet, advice: str = _ADVICE, *, keeps_open: bool = False
    ) -> None:
        self._path, self._identity, self._advice = path, _identity(file), advice
        self._descriptor = os.dup(file.fileno()) if keeps_open else -1
        self.schema = parquet.schema.remove_metadata()
        sizes = [parquet.metadata.row_group(index).num_rows for index in range(parquet.metadata.num_row_groups)]
        if min(sizes, default=0) < 0 or sum(sizes) != parquet.metadata.num_rows or max(sizes, default=0) > _MOST_LINES:
            raise ValueError(f"row groups of {', '.join(map(str, sizes[:3]))} lines, {parquet.metadata.num_rows} in all")
        self._footer = parquet.footer
        self._starts: list[int] = list(accumulate(sizes, initial=0))
        self._last: tuple[int, pa.Table] | None = None

    def __len__(self) -> int:
        return self._starts[-1]

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        index = bisect_right(self._starts, start) - 1
        with ExitStack() as stack:
            parquet = None
            while start < end:
                if (table := self._cached(index, columns)) is None:
                    parquet = parquet or stack.enter_context(self._opened())
                    table = self._row_group(parquet, index, columns)
                begin = self._starts[index]
                index += 1
                stop = min(end, self._starts[index])
                for first in range(start - begin, stop - begin, ROWS):
                    yield table.slice(first, min(ROWS, stop - begin - first))
                start = stop

    def _cached(self, index: int, columns: Sequence[str]) -> pa.Table | None:
        if self._last is None or self._last[0] != index:
            return None
        return self._last[1].select(columns)

    def _row_group(self, parquet: BoundedParquet, index: int, columns: Sequence[str]) -> pa.Table:
        table = parquet.read(columns, [index]).replace_schema_metadata(None)
        table.validate(full=True)  # the file may be hostile: invalid UTF-8, list offsets beyond the values
        if list(columns) == self.schema.names:
            self._last = index, table  # steps are short: the next one most likely begins in this row group
        return table

    @contextmanager
    def _opened(self) -> Iterator[BoundedParquet]:
        with self._file() as file:
            yield BoundedParquet(file, use_threads=False, footer=self._footer)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    @contextmanager
    def _file(self) -> Iterator[Any]:
        path = self._path if self._descriptor < 0 else Path(f"/proc/self/fd/{self._descriptor}")
        with damage_as_run_error(self._path, self._advice), open_regular(path, error=RunError) as file:
            if _identity(file) != self._identity:
                raise RunError(f"{shown(self._path)} was replaced while it was in use: run the command again")
            yield file

    def at_hand(self) -> Lines:
        """These lines for a caller that reads them several times: a small file is loaded as a table."""
        if len(self) > ROWS:
            return self
        with self._opened() as parquet:
            return TableLines(parquet.read(self.schema.names).replace_schema_metadata(None))

    def file_sha256(self) -> str:
        """sha256 of the file, in hex."""
        with self._file() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _identity(file: Any) -> tuple[int, int, int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def write_manifest(path: Path, lines: Lines, metadata: dict[str, str]) -> None:
    """Publish lines with page checksums, one row group per block, so that a reader of a few lines reads only their group.

    With `archives` in the metadata it is a manifest of pictures in archives, which has columns for their places.
    """
    schema, format_ = (ARCHIVE_SCHEMA, ARCHIVE_FORMAT) if "archives" in metadata else (SCHEMA, FORMAT)
    if is_stored(bytes.fromhex(metadata["root"])):
        format_ = STORE_FORMAT
    marks = {"format": str(format_), "content": MANIFEST_CONTENT.decode(), "checksum": _checksum(metadata)}
    schema = schema.with_metadata({**marks, **metadata})
    with (
        publishing(path) as temporary,
        temporary.open("wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for block in lines.blocks(schema.names, 0, len(lines)):
            writer.write_table(block.replace_schema_metadata(schema.metadata), ROWS)


def open_manifest(path: Path) -> tuple[FileLines, dict[str, str]]:
    """The lines of a manifest, not read yet, and its checked metadata.

    Raises RunError if it is missing or damaged, its subclass UnreadableError if there is too little memory to find out,
    UsageError if a newer bulkinfer wrote it.
    """
    with damage_as_run_error(path), open_regular(path, error=RunError) as file:
        parquet = BoundedParquet(file, use_threads=False)
        metadata = _checked_metadata(path, parquet.schema.metadata or {})
        lines = FileLines(path, file, parquet)
        if lines.schema != (ARCHIVE_SCHEMA if "archives" in metadata else SCHEMA):
            raise ValueError("its columns are not those of a manifest")
        return lines, metadata


@contextmanager
def damage_as_run_error(path: Path, advice: str = _ADVICE) -> Iterator[None]:
    """Turn every error that reading a damaged file may raise into a RunError; OSErrors of the system (with errno) pass.

    `advice` says what to do about it.
    """
    try:
        yield
    except FileNotFoundError:
        raise RunError(f"{shown(path)} does not exist: {advice}") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if isinstance(error, MemoryError) or any(words in str(error) for words in _SHORTAGES):
            enough = "free memory, or raise the limits of this shell (ulimit -a)"
            raise UnreadableError(f"{shown(path)} cannot be read ({first_line(error)}): {enough}") from None
        raise RunError(f"{shown(path)} is damaged ({first_line(error)}): {advice}") from None


def _checked_metadata(path: Path, raw: dict[bytes, bytes]) -> dict[str, str]:
    """The metadata that `write_manifest` wrote, checked here because page checksums do not cover it.

    Raises KeyError or ValueError if it is damaged.
    """
    if raw.get(b"content") != MANIFEST_CONTENT:
        raise RunError(f"{shown(path)} is not a manifest of bulkinfer: run partition_dataset into another folder")
    if (found := raw[b"format"].decode()) not in (str(FORMAT), str(ARCHIVE_FORMAT), str(STORE_FORMAT)):
        raise UsageError(
            f"{shown(path)} has format {found}; this bulkinfer reads formats up to {STORE_FORMAT}: install a newer bulkinfer"
        )
    has_archives = found == str(ARCHIVE_FORMAT) or (found == str(STORE_FORMAT) and b"archives" in raw)
    names = ("content_hash", "mode", "root", *(("archives",) if has_archives else ()))
    metadata = {name: raw[name.encode()].decode() for name in names}
    if raw[b"checksum"].decode() != _checksum(metadata):
        raise ValueError("its metadata does not match its checksum")
    return metadata


def _checksum(metadata: dict[str, str]) -> str:
    return hashlib.sha256(canonical_json(metadata).encode()).hexdigest()
