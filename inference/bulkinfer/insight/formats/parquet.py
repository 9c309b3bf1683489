"""The rows in Parquet files of another size."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import TEMPORARY_PREFIX, fsync_directory, remove_abandoned, temporary_path, write_owner_file
from bulkinfer.insight.options import RowsConfig
from bulkinfer.results.reader import Results
from bulkinfer.types import printable_path

_NAME = "rows-{:05d}.parquet"


def write_parquet(results: Results, final: Path, config: RowsConfig) -> int:
    """Write a folder of files with `rows_per_file` rows each, all columns, in the order of the parts; returns their rows.

    The folder appears when it is complete. Raises UsageError if --overwrite would remove files of others.
    """
    if final.is_dir():
        _refuse_strangers(final)
    remove_abandoned(final.parent, f"{TEMPORARY_PREFIX}*")
    temporary = temporary_path(final)
    try:
        temporary.mkdir()
        owner = write_owner_file(temporary)
        count = _write(results, temporary, config.rows_per_file)
        owner.unlink()
        _put_in_place(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    fsync_directory(final.parent)
    return count


def _put_in_place(new: Path, final: Path) -> None:
    """Rename the new folder to `final`. The old one is removed after that, and comes back if `final` cannot be made.

    Raises RunError that names the folder where old files are left.
    """
    if not final.is_dir():
        new.rename(final)
        return
    old, shown = final.rename(temporary_path(final)), printable_path(final)
    try:
        new.rename(final)
    except BaseException:
        try:
            old.rename(final)
        except OSError as error:
            left = f"its files are left in {printable_path(old)} ({error.strerror})"
            raise RunError(f"{shown} was not replaced, and {left}: move that folder to {shown}") from None
        raise
    try:
        shutil.rmtree(old)
    except OSError as error:
        left = f"the files before are left in {printable_path(old)} ({error.strerror})"
        raise RunError(f"{shown} is complete, but {left}: remove that folder") from None


def _refuse_strangers(folder: Path) -> None:
    for path in folder.iterdir():
        if not (path.name.startswith("rows-") and path.suffix == ".parquet" and path.is_file()):
            raise UsageError(f"{printable_path(path)} was not written by this command: give another --to")


def _write(results: Results, folder: Path, rows_per_file: int) -> int:
    count = num_files = 0
    with ExitStack() as stack:
        writer: Any = None
        for table in results.tables():
            while len(table):
                if count == num_files * rows_per_file:
                    stack.close()  # the file before is full
                    writer = _open(stack, folder / _NAME.format(num_files), table.schema)
                    num_files += 1
                piece = table.slice(0, min(len(table), num_files * rows_per_file - count))
                writer.write_table(piece)
                count += len(piece)
                table = table.slice(len(piece))
    return count


def _open(stack: ExitStack, path: Path, schema: pa.Schema) -> Any:
    """A Parquet file that is on disk when the stack is closed."""
    file = stack.enter_context(path.open("wb"))
    stack.callback(os.fsync, file.fileno())
    stack.callback(file.flush)
    return stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True))
