"""fetch.py: an object in a file, in parts, and no mixture of two objects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import AbsentObjectError, ObjectError
from bulkinfer.stores import fetch as module
from bulkinfer.stores.fetch import fetch_object
from bulkinfer.stores.store import Found

from tests.memory_store import MemoryStore, put_in_place

ADDRESS = "s3://bucket/a"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    monkeypatch.setattr(module, "_PART_BYTES", 1000)
    return put_in_place(monkeypatch, tmp_path)


@pytest.mark.parametrize("size", [0, 999, 1000, 1001, 20_500])
def test_an_object_arrives_whole(store: MemoryStore, tmp_path: Path, size: int) -> None:
    store.objects["a"] = os.urandom(size)
    fetch_object(ADDRESS, tmp_path / "file", size)
    assert (tmp_path / "file").read_bytes() == store.objects["a"]
    assert store.requests.count("get a") == max(1, -(-size // 1000))
    if size:
        with pytest.raises(ObjectError, match=f"too large: {size} bytes, limit {size - 1}"):
            fetch_object(ADDRESS, tmp_path / "other", size - 1)


def test_an_object_that_changes_meanwhile(store: MemoryStore, tmp_path: Path) -> None:
    store.objects["a"] = bytes(5000)

    def change(_request: str) -> None:
        if store.requests.count("get a") == 3:
            store.objects["a"] = b"x" * 5000

    store.on_request = change
    with pytest.raises(ObjectError, match="has changed while it was read"):
        fetch_object(ADDRESS, tmp_path / "file", 5000)


def test_a_server_that_gives_no_parts(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(key: str, offset: int, count: int) -> tuple[bytes, Found]:
        raise ObjectError("its server gives whole files only, no parts of them")

    monkeypatch.setattr(store, "get_range", refuse)
    store.objects["a"] = os.urandom(5000)
    fetch_object(ADDRESS, tmp_path / "file", 5000)
    assert (tmp_path / "file").read_bytes() == store.objects["a"]


def test_no_object(store: MemoryStore, tmp_path: Path) -> None:
    with pytest.raises(AbsentObjectError):
        fetch_object(ADDRESS, tmp_path / "file", 5000)
