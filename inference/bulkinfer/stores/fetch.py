"""An object fetched into a file, in parts that are asked for at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bulkinfer.errors import AbsentObjectError, ObjectError
from bulkinfer.stores.store import Store, open_store

_PART_BYTES = 8 << 20
_AT_ONCE = 8  # parts; so many are in memory


def fetch_object(address: str, path: Path, most_bytes: int) -> None:
    """Write the content of an object into a new file.

    Raises ObjectError or AbsentObjectError if it cannot be read, has more than `most_bytes`, or changes meanwhile; StoreError
    or UsageError as open_store and Store.get do.
    """
    store, key = open_store(address)
    size_bytes = store.find(key).size_bytes
    if size_bytes > most_bytes:
        raise ObjectError(f"too large: {size_bytes} bytes, limit {most_bytes}")
    if size_bytes > _PART_BYTES and _fetch_parts(store, key, path, size_bytes):
        return
    path.write_bytes(store.get(key, most_bytes, lambda _size: None))


def _fetch_parts(store: Store, key: str, path: Path, size_bytes: int) -> bool:
    """Fetch the parts of an object; False if its server gives none."""
    try:
        first, found = store.get_range(key, 0, _PART_BYTES)
    except AbsentObjectError:
        raise
    except ObjectError:
        return False
    with path.open("wb") as file, ThreadPoolExecutor(_AT_ONCE) as pool:
        descriptor = file.fileno()
        file.write(first)
        file.flush()

        def fetch(offset: int) -> None:
            data, now = store.get_range(key, offset, min(_PART_BYTES, size_bytes - offset))
            if now != found or len(data) != min(_PART_BYTES, size_bytes - offset):
                raise ObjectError("it has changed while it was read")
            os.pwrite(descriptor, data, offset)

        for _ in pool.map(fetch, range(len(first), size_bytes, _PART_BYTES)):
            pass
    return True
