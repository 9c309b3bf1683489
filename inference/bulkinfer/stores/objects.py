"""Objects by their address: read as a whole, in part, or as a file."""

from __future__ import annotations

import io
import os
from typing import Any

from bulkinfer.errors import ObjectError
from bulkinfer.files.addresses import address_of
from bulkinfer.stores.store import Admit, Found, open_store

_BLOCK_BYTES = 4 << 20  # of one request for an object that is read as a file


def read_object(address: str, most_bytes: int, admit: Admit = lambda _size: None) -> bytes:
    """The content of an object; see Store.get."""
    store, key = open_store(address)
    return store.get(key, most_bytes, admit)


def read_range(address: str, offset: int, count: int) -> tuple[bytes, Found]:
    """A part of an object; see Store.get_range."""
    store, key = open_store(address)
    return store.get_range(key, offset, count)


def find_object(address: str) -> Found:
    """What is known of an object; see Store.find."""
    store, key = open_store(address)
    return store.find(key)


class _Parts(io.RawIOBase):
    """An object as an unbuffered file: each read is one request."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address, self._position = address, 0
        self._size = find_object(address).size_bytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        data, _ = read_range(self._address, self._position, count)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def open_object(address: str) -> io.BufferedReader:
    """An object as a file for reading; its parts are fetched when they are read."""
    return io.BufferedReader(_Parts(address), _BLOCK_BYTES)


def object_address(place: bytes) -> str:
    """The address in the bytes of a place. Raises ObjectError if it is not UTF-8, as keys of objects are."""
    try:
        return address_of(place.decode())
    except UnicodeDecodeError:
        raise ObjectError("its address is not UTF-8, as keys of objects are") from None
