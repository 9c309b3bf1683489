"""Objects by their address: read as a whole, in part, or as a file."""

from __future__ import annotations

import io

from bulkinfer.errors import ObjectError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.file_in_parts import FileInParts
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


def open_object(address: str) -> io.BufferedReader:
    """An object as a file for reading; its parts are fetched when they are read."""
    size_bytes = find_object(address).size_bytes
    return io.BufferedReader(FileInParts(size_bytes, lambda offset, count: read_range(address, offset, count)[0]), _BLOCK_BYTES)


def object_address(place: bytes) -> str:
    """The address in the bytes of a place. Raises ObjectError if it is not UTF-8, as keys of objects are."""
    try:
        return address_of(place.decode())
    except UnicodeDecodeError:
        raise ObjectError("its address is not UTF-8, as keys of objects are") from None
