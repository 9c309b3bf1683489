"""What an output can do: files are listed, read, published as a whole and removed, in a folder or below a prefix of a bucket.

The own folder of an output is used in the same way. Control files are in results/control_files.py, locks in
results/output_locks.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import file_sha256, publishing
from bulkinfer.files.guarded import open_regular, read_bytes
from bulkinfer.files.own_folder import make_own_folder, own_folder


class Entry(NamedTuple):
    """A file or folder in an output. `tag` is that of an object, which changes with its content; empty for files."""

    is_folder: bool = False
    is_link: bool = False
    size_bytes: int = 0
    tag: str = ""


class OutputStore(Protocol):
    """A results folder, or a prefix of a bucket. Names are those of files directly in it."""

    def is_there(self) -> bool:
        """True if the folder exists, or any object lies below the prefix."""

    def make(self) -> None:
        """Make the folder."""

    def entries(self) -> dict[str, Entry]:
        """All that lies in it, by name; empty if it is not there."""

    def readable_files(self) -> Iterator[str]:
        """Files in it and below it that readers of Parquet data sets read, by their relative names.

        They skip files whose names, or whose folders' names, begin with _ or a dot.
        """

    def has(self, name: str) -> bool:
        """True if there is a file of this name."""

    def size_bytes(self, name: str) -> int | None:
        """The size of a file; None if there is none."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """The content of a file. Raises OSError or RunError that names it."""

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file for reading in parts."""

    def publish(
        self, name: str, write: Callable[[BinaryIO], None], check: Callable[[], None], *, replaces: bool = False
    ) -> str:
        """Publish what `write` writes, completely or not at all; returns its sha256.

        `check` is called when it is complete; an exception from it prevents the publishing. Below a prefix a file that is there
        is replaced only if the new one `replaces` it: else ConflictError is raised.
        """

    def set_aside(self, name: str, new_name: str) -> Path:
        """Move a file to the own folder, under another name; returns its new path."""

    def remove(self, name: str) -> None:
        """Remove a file; without an error if there is none."""


def output_store(output: Path) -> OutputStore:
    """The store of an output, or of an own folder."""
    if not isinstance(output, AddressPath):
        return FolderStore(output)
    from bulkinfer.results.bucket_store import BucketStore

    return BucketStore(output)


def require_bucket(output: Path, option: str) -> None:
    """Raises UsageError if `output` is an address to which no results can be written, or its client cannot be used."""
    if not isinstance(output, AddressPath):
        return
    from bulkinfer.stores.store import WEB, open_store

    shown = f"{option} {output}".strip()
    if str(output).partition("://")[0] in WEB:
        raise UsageError(f"{shown}: a web server takes no results: give a bucket, as in s3://bucket/folder, or a folder")
    if ".." in output.parts:
        raise UsageError(f"{shown}: an address has no ..: leave it out")
    open_store(str(output))


class FolderStore:
    """A folder of this machine, or of a file server; see OutputStore. Files are published by a rename out of the own folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_there(self) -> bool:
        return self._folder.is_dir()

    def make(self) -> None:
        self._folder.mkdir(exist_ok=True)

    def entries(self) -> dict[str, Entry]:
        if not self._folder.is_dir():
            return {}
        with os.scandir(self._folder) as found:
            return {entry.name: Entry(entry.is_dir(), entry.is_symlink()) for entry in found}

    def readable_files(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
            for name in sorted(names):
                if not name.startswith(("_", ".")):
                    yield str((Path(folder) / name).relative_to(self._folder))

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def size_bytes(self, name: str) -> int | None:
        path = self._folder / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str, most_bytes: int) -> bytes:
        return read_bytes(self._folder / name, most_bytes)

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        return open_regular(self._folder / name)

    def publish(
        self, name: str, write: Callable[[BinaryIO], None], check: Callable[[], None], *, replaces: bool = False
    ) -> str:
        del replaces  # a rename replaces what is there
        folder = own_folder(self._folder)  # not among the parts: readers would read half a file
        place = folder if folder.is_dir() else make_own_folder(self._folder)
        with publishing(self._folder / name, place) as temporary:
            with temporary.open("wb") as file:  # pyarrow does not take paths that are not UTF-8
                write(file)
                file.flush()
                os.fsync(file.fileno())  # may take long, so it comes before the last check
            sha256 = file_sha256(temporary)
            check()
            return sha256

    def set_aside(self, name: str, new_name: str) -> Path:
        aside = make_own_folder(self._folder) / new_name
        (self._folder / name).rename(aside)
        return aside

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)
