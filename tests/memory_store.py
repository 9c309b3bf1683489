"""A store of objects in memory, in place of every bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bulkinfer.errors import AbsentObjectError, AbsentStoreError, ConflictError, ObjectError
from bulkinfer.stores import store as module
from bulkinfer.stores.store import Found, Listed

PAGE = 3  # objects


class MemoryStore:
    """See Store. `requests` has what was asked, as in "get a/b"; `on_request` is called with each before it is answered."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = objects or {}
        self.requests: list[str] = []
        self.on_request: Callable[[str], object] = lambda _request: None

    def put_folder(self, folder: Path, prefix: str) -> None:
        """Put all files of a folder below a prefix."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.objects[f"{prefix}/{path.relative_to(folder)}"] = path.read_bytes()

    def _ask(self, kind: str, key: str) -> bytes:
        self.requests.append(f"{kind} {key}")
        self.on_request(self.requests[-1])
        if key not in self.objects:
            raise AbsentObjectError("object not found")
        return self.objects[key]

    def get(self, key: str, most_bytes: int, admit: Callable[[int], object]) -> bytes:
        data = self._ask("get", key)
        if len(data) > most_bytes:
            raise ObjectError(f"too large: {len(data)} bytes, limit {most_bytes}")
        admit(len(data))
        return data

    def get_range(self, key: str, offset: int, count: int) -> tuple[bytes, Found]:
        return self._ask("get", key)[offset : offset + count], self._found(key)

    def find(self, key: str) -> Found:
        self._ask("find", key)
        return self._found(key)

    def _found(self, key: str) -> Found:
        return Found(len(self.objects[key]), 0, self._tag(key))

    def _tag(self, key: str) -> str:
        return hashlib.sha256(self.objects[key]).hexdigest()

    def list(self, prefix: str) -> Iterator[list[Listed]]:
        self.requests.append(f"list {prefix}")
        self.on_request(self.requests[-1])
        below = sorted(key for key in self.objects if key.startswith(f"{prefix}/" if prefix else ""))
        for start in range(0, len(below), PAGE):
            yield [Listed(key, len(self.objects[key]), 0) for key in below[start : start + PAGE]]

    def put(self, key: str, data: bytes, *, only_new: bool = False, instead_of: str = "") -> str:
        self.requests.append(f"put {key}")
        self.on_request(self.requests[-1])
        if (only_new and key in self.objects) or (instead_of and self._tag(key) != instead_of):
            raise ConflictError(f"{key} was made or changed by another process")
        self.objects[key] = data
        return self._tag(key)

    def delete(self, key: str) -> None:
        self.requests.append(f"delete {key}")
        self.objects.pop(key, None)


def put_in_place(monkeypatch: pytest.MonkeyPatch, cache: Path) -> MemoryStore:
    """Let every address of a bucket lead to a new MemoryStore, and the user's cache lie in `cache`.

    The bucket `nosuch` does not exist.
    """
    store, absent = MemoryStore(), MemoryStore()

    def refuse(_request: str) -> None:
        raise AbsentStoreError("the bucket s3://nosuch does not exist: correct its name, and run the same command again")

    absent.on_request = refuse
    monkeypatch.setattr(module, "_open", lambda _scheme, name: absent if name == "nosuch" else store)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return store
