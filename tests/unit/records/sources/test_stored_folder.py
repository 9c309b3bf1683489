"""stored_folder.py: which objects are pictures, in which order, and that memory does not grow with a listing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import ObjectError, UsageError
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import SCHEMA
from bulkinfer.records.sources import stored_folder
from bulkinfer.records.sources.folder import scan_folder
from bulkinfer.records.sources.stored_folder import StoredPictures, list_stored
from bulkinfer.stores.store import Found, Listed, Store

from tests import pictures


class FakeStore:
    """A bucket in memory. `order` is that of its listing; `unreadable` keys cannot be read."""

    def __init__(self, objects: dict[str, bytes], order: Sequence[str] = (), unreadable: Sequence[str] = ()) -> None:
        self.objects, self.order, self.unreadable = objects, order or sorted(objects), unreadable
        self.heads: list[str] = []

    def list(self, prefix: str) -> Iterator[list[Listed]]:
        below = [key for key in self.order if key.startswith(f"{prefix}/" if prefix else "")]
        for start in range(0, len(below), 2):
            yield [Listed(key, len(self.objects[key]), 0) for key in below[start : start + 2]]

    def get_range(self, key: str, offset: int, count: int) -> tuple[bytes, Found]:
        if key in self.unreadable:
            raise ObjectError("the store refuses access to it (AccessDenied)")
        self.heads.append(key)
        return self.objects[key][offset : offset + count], Found(len(self.objects[key]), 0, "")


def list_of(monkeypatch: pytest.MonkeyPatch, store: Store | FakeStore, **options: bool) -> StoredPictures:
    monkeypatch.setattr(stored_folder, "open_store", lambda address: (store, address.removeprefix("s3://bucket").strip("/")))
    return list_stored("s3://bucket/set/", **options)


FILES = {
    "a/1.jpg": pictures.jpeg(),
    "a/2.PNG": b"not one, which decoding will find",
    "a/empty.jpg": b"",
    "b/no extension": pictures.jpeg(64, 48, 3),
    "b/notes.txt": b"BMW is no bitmap",
    "b/shards.tar": bytes(1024),
    "b/COCO_val2014_000000000042.jpg": pictures.jpeg(),
    ".hidden/x.jpg": pictures.jpeg(),
    "b/.DS_Store": b"x",
    "b/._1.jpg": b"\x00\x05\x16\x07" + bytes(100),
    "ü/日.jpg": pictures.jpeg(),
}


@pytest.mark.parametrize("include_hidden", [False, True])
def test_the_pictures_are_those_of_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, include_hidden: bool) -> None:
    pictures.write_files(tmp_path / "photos", FILES)
    store = FakeStore({f"set/{name}": data for name, data in FILES.items()} | {"sets/no.jpg": b"x"})
    found = list_of(monkeypatch, store, include_hidden=include_hidden)
    scan = scan_folder(tmp_path / "photos", include_hidden=include_hidden)
    entries = list(Manifest.from_entries(found.lines, found.root).entries())
    assert [(entry.key, entry.size_bytes) for entry in entries] == [(each.key, each.size_bytes) for each in scan.pictures]
    assert [entry.key for entry in entries if entry.image_id == 42] == [b"b/COCO_val2014_000000000042.jpg"]
    assert (found.scan.not_pictures, found.scan.archives) == (scan.not_pictures, scan.archives)
    assert found.scan.lines[0].startswith(f"found {len(scan.pictures)} pictures (")
    assert "set/a/1.jpg" not in store.heads  # names that decide cost no request
    assert next(Manifest.from_entries(found.lines, found.root).records()).place == b"s3://bucket/set/" + entries[0].key


def test_a_store_that_lists_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"set/{name}.jpg" for name in ("c", "a", "d", "b")]
    found = list_of(monkeypatch, FakeStore(dict.fromkeys(keys, b"1"), keys))
    assert list(found.lines.all_keys()) == [b"a.jpg", b"b.jpg", b"c.jpg", b"d.jpg"]


def test_what_cannot_be_read_is_a_picture_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = dict.fromkeys(["set/a.jpg", "set/._b.jpg", "set/c"], b"1")
    found = list_of(monkeypatch, FakeStore(objects, unreadable=list(objects)), include_hidden=True)
    assert list(found.lines.all_keys()) == [b"._b.jpg", b"a.jpg"]
    (line,) = found.scan.unreadable_lines()
    assert line == "unreadable, its pictures are missing: c (the store refuses access to it (AccessDenied))"


def test_a_key_that_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(FakeStore):
        def list(self, prefix: str) -> Iterator[list[Listed]]:
            yield from super().list(prefix)
            raise ObjectError("its key has an empty part")

    with pytest.raises(UsageError, match="the objects below s3://bucket/set cannot be listed: of one of them its key has"):
        list_of(monkeypatch, Odd({"set/a.jpg": b"1"}))


def test_lines_come_in_blocks_with_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "ROWS", 3000)
    count = 2 * 3000 + 10

    class Many(FakeStore):
        def list(self, prefix: str) -> Iterator[list[Listed]]:
            for start in range(0, count, 1000):
                yield [Listed(f"set/{number:07d}.jpg", number, 0) for number in range(start, min(start + 1000, count))]

    found = list_of(monkeypatch, Many({}))
    assert len(found.lines) == count
    labels = np.arange(count, dtype=np.int32) % 3 - 1
    lines = stored_folder.StoredLines(found.lines.lines, labels)
    blocks = list(lines[5:].blocks(SCHEMA.names, 0, count - 5))
    assert max(map(len, blocks)) == 3000
    assert sum(map(len, blocks)) == count - 5
    assert blocks[0]["key"][0].as_py() == "0000005.jpg"
    assert [value.as_py() for value in blocks[0]["label"][:4]] == [1, None, 0, 1]
    assert [next(lines.sizes_bytes()), sum(1 for _ in lines.sizes_bytes())] == [0, count]
