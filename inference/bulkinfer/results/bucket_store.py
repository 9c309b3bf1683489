"""The output below a prefix of a bucket. Each file is one object, which one put makes: it is there as a whole, or not."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from bulkinfer.errors import AbsentObjectError, ConflictError, ObjectError, RunError, StoreError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.own_folder import own_folder
from bulkinfer.results.output_store import Entry
from bulkinfer.stores.objects import open_object
from bulkinfer.stores.store import Found, open_store

_LONGEST_S, _PAUSE_S = 120.0, 0.1  # of the tries of a put whose answer is lost


class Content(NamedTuple):
    """The bytes of an object, the tag that they have there, and the time of its last change in s."""

    data: bytes
    tag: str
    changed_s: float


class BucketStore:
    """See OutputStore."""

    def __init__(self, output: AddressPath) -> None:
        self._output = output
        self._store, self._prefix = open_store(str(output))

    def is_there(self) -> bool:
        return next(self._all(), None) is not None

    def make(self) -> None:
        return

    def entries(self) -> dict[str, Entry]:
        return {name: entry for name, entry in self._all() if "/" not in name}

    def readable_files(self) -> Iterator[str]:
        for name in sorted(name for name, _ in self._all()):
            if not any(part.startswith(("_", ".")) for part in name.split("/")):
                yield name

    def has(self, name: str) -> bool:
        return _find(self._output / name) is not None

    def size_bytes(self, name: str) -> int | None:
        return None if (found := _find(self._output / name)) is None else found.size_bytes

    def read(self, name: str, most_bytes: int) -> bytes:
        with _naming(self._output / name):
            return self._store.get(self._key(name), most_bytes, lambda _size: None)

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        with _naming(self._output / name):
            return cast("AbstractContextManager[BinaryIO]", open_object(str(self._output / name)))

    def publish(
        self, name: str, write: Callable[[BinaryIO], None], check: Callable[[], None], *, replaces: bool = False
    ) -> str:
        buffer = io.BytesIO()
        write(buffer)
        data, there = buffer.getvalue(), _find(self._output / name) if replaces else None
        sha256 = hashlib.sha256(data).hexdigest()
        check()
        put_object(self._output / name, data, instead_of="" if there is None else there.tag)
        return sha256

    def set_aside(self, name: str, new_name: str) -> Path:
        aside = AddressPath(own_folder(self._output) / new_name)
        if (found := read_object(self._output / name)) is not None:
            there = _find(aside)
            put_object(aside, found.data, instead_of="" if there is None else there.tag)
            self.remove(name)
        return aside

    def remove(self, name: str) -> None:
        with _naming(self._output / name):
            self._store.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _all(self) -> Iterator[tuple[str, Entry]]:
        """All objects below the prefix by their relative names, but for those that only stand for a folder."""
        start = len(self._key(""))
        for page in self._store.list(self._prefix):
            for each in page:
                if (name := each.key[start:]) and not name.endswith("/"):
                    yield name, Entry(size_bytes=each.size_bytes, tag=each.tag.strip('"'))


def read_object(path: AddressPath, most_bytes: int = 1 << 31) -> Content | None:
    """An object with its tag; None if there is none. Raises RunError that names it."""
    store, key = open_store(str(path))
    with _naming(path):
        try:
            data, found = store.get_range(key, 0, most_bytes)
        except AbsentObjectError:
            return None
    if found.size_bytes > len(data):
        raise RunError(f"{path} has {found.size_bytes:,} bytes, and can have {most_bytes:,} at most: move it away")
    return Content(data, found.tag, found.mtime_ns / 1e9)


def put_object(path: AddressPath, data: bytes, *, instead_of: str = "") -> str:
    """Make an object, or put another one in place of that with the tag `instead_of`; returns its tag.

    A put whose answer is lost may have been done: then the object there decides. Raises ConflictError if it is another one than
    this, and than that to be replaced; other RunErrors that name it.
    """
    store, key = open_store(str(path))
    end, number = time.monotonic() + _LONGEST_S, 0
    while True:
        with _naming(path):
            try:
                return store.put(key, data, only_new=not instead_of, instead_of=instead_of)
            except (AbsentObjectError, ConflictError, StoreError) as error:
                if isinstance(error, StoreError) and time.monotonic() > end:
                    raise
                there = _find(path)
                if there is not None and there.size_bytes == len(data) and store.get(key, len(data), _admit) == data:
                    return there.tag
                if (there.tag if there else "") != instead_of:
                    raise ConflictError(f"{path} was made or changed by another process") from None
                if time.monotonic() > end:
                    raise
        number += 1
        time.sleep(min(5.0, _PAUSE_S * 2**number))


def overwrite_object(path: AddressPath, data: bytes) -> None:
    """Put an object, whatever is there: for what only one process writes, and may be lost."""
    store, key = open_store(str(path))
    with _naming(path):
        store.put(key, data)


def _admit(_size: int) -> None:
    return


def _find(path: AddressPath) -> Found | None:
    store, key = open_store(str(path))
    with _naming(path):
        try:
            return store.get_range(key, 0, 1)[1]  # an answer to HEAD does not say what is wrong
        except AbsentObjectError:
            return None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error of one object name it. Errors of the whole store, and conflicts, do that already."""
    try:
        yield
    except ConflictError:
        raise
    except AbsentObjectError:
        raise RunError(f"{path} does not exist") from None
    except ObjectError as error:
        raise RunError(f"{path}: {error}: correct that, and run the same command again") from None
