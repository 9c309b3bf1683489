"""manifest.py: manifests are read as written, damage is found, data sets are opened or refused in a sentence."""

from __future__ import annotations

import gc
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError, UnreadableError, UsageError
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.layout import link_name
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry, TableLines, content_hash, entries_table, hash_keys
from bulkinfer.records.partitions.partition import publish_partitions
from bulkinfer.records.partitions.split import even_split
from bulkinfer.records.place import ADDRESSES
from bulkinfer.types import Record, Step
from hypothesis import given
from hypothesis import strategies as st

from tests.sealed import write_sealed

ENTRIES = [
    Entry(b"a/1.jpg", 10, 3, (1, 7), 42),
    Entry(b"caf\xe9.png", 0, None, (), None),
    Entry("café.png".encode(), None, None, None, 1 << 40),
    Entry(b"caf\\xe9.png", 5),
]


@pytest.mark.parametrize(
    ("root", "place", "format_"),
    [(b"/data", b"/data/a.jpg", b"1"), (b"s3://b/set", b"s3://b/set/a.jpg", b"3"), (ADDRESSES, b"a.jpg", b"3")],
)
def test_a_manifest_of_pictures_in_stores(tmp_path: Path, root: bytes, place: bytes, format_: bytes) -> None:
    """Versions that would take an address for a path refuse it by its format."""
    Manifest.from_entries([Entry(b"a.jpg", 10)], root).write(tmp_path / "manifest.parquet")
    read = Manifest.read(tmp_path / "manifest.parquet")
    assert (read.root, read.is_stored, next(read.records()).place) == (root, format_ == b"3", place)
    assert pq.read_metadata(tmp_path / "manifest.parquet").metadata[b"format"] == format_


def test_round_trip(tmp_path: Path) -> None:
    written = Manifest.from_entries(ENTRIES, b"/data/\xff")
    written.write(tmp_path / "manifest.parquet")
    read = Manifest.read(tmp_path / "manifest.parquet")
    assert list(read.entries()) == ENTRIES
    assert (read.root, read.mode, read.content_hash) == (b"/data/\xff", "manifest", written.content_hash)
    assert read.num_records == 4
    assert read.size_bytes() == 15
    assert read.size_bytes(1, 3) == 0
    assert list(read.records(0, 2)) == [
        Record(0, b"a/1.jpg", b"/data/\xff/a/1.jpg", 3, (1, 7)),
        Record(1, b"caf\xe9.png", b"/data/\xff/caf\xe9.png", None, ()),
    ]
    assert [record.number for record in read.records(2)] == [2, 3]


def test_the_file_as_others_see_it(tmp_path: Path) -> None:
    Manifest.from_entries(ENTRIES, b"/data", "symlink").write(tmp_path / "manifest.parquet")
    table = pq.read_table(tmp_path / "manifest.parquet", page_checksum_verification=True)
    assert table["key"].to_pylist() == ["a/1.jpg", r"caf\xe9.png", "café.png", r"caf\xe9.png"]
    assert table["key_bytes"].to_pylist() == [None, b"caf\xe9.png", None, None]
    assert table.schema.metadata[b"format"] == b"1"
    assert table.schema.field("label").type == pa.int32()


def test_a_linked_partition_can_be_moved(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    Manifest.from_entries(ENTRIES, b"/elsewhere", "copy").write(tmp_path / "one/manifest.parquet")
    (tmp_path / "one").rename(tmp_path / "two")
    first = next(Manifest.read(tmp_path / "two/manifest.parquet").records())
    assert first.place == os.fsencode(tmp_path / "two/a/1.jpg")


def test_more_records_than_a_block() -> None:
    entries = [Entry(b"%07d.jpg" % number, number) for number in range(70_000)]
    manifest = Manifest.from_entries(iter(entries), b"/data")
    assert len(list(manifest.lines.blocks(["key"], 0, 70_000))) > 1
    assert [record.number for record in manifest.records(65_530, 65_545)] == list(range(65_530, 65_545))
    assert [entry.size_bytes for entry in manifest.entries(65_530, 65_545)] == list(range(65_530, 65_545))
    assert manifest.content_hash == content_hash(TableLines(entries_table(entries).combine_chunks()))


_entries = st.builds(
    Entry,
    st.one_of(st.binary(min_size=1, max_size=9), st.text(min_size=1, max_size=5).map(str.encode)),
    st.none() | st.integers(0, 1 << 50),
    st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.lists(st.integers(0, 90), max_size=3).map(tuple),
    st.none() | st.integers(0, 1 << 50),
)


def hash_by_hand(entries: list[Entry]) -> str:
    """What is hashed, written down: the format of every manifest there is."""

    def integers(values: list[int | None]) -> bytes:
        there = bytes(value is not None for value in values)
        return there + b"".join((value or 0).to_bytes(8, "little", signed=True) for value in values)

    categories = [entry.category_ids for entry in entries]
    parts = [
        b"bulkinfer manifest 1, %d records\n" % len(entries),
        integers([len(entry.key) for entry in entries]),
        b"".join(entry.key for entry in entries),
        integers([None if ids is None else len(ids) for ids in categories]),
        integers([number for ids in categories for number in ids or ()]),
        integers([entry.size_bytes for entry in entries]),
        integers([entry.label for entry in entries]),
        integers([entry.image_id for entry in entries]),
    ]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@given(st.lists(_entries, max_size=6), st.lists(_entries, max_size=6))
def test_content_hash_tells_different_lists_apart(one: list[Entry], two: list[Entry]) -> None:
    first, second = Manifest.from_entries(one, b"/1"), Manifest.from_entries(two, b"/2")
    assert list(first.entries()) == one
    assert (first.content_hash == second.content_hash) == (one == two)
    assert content_hash(TableLines(pa.concat_tables([entries_table(one[:1]), entries_table(one[1:])]))) == first.content_hash
    assert first.content_hash == hash_by_hand(one)


@given(st.sets(st.from_regex(rb"manifest\.parquet_{0,3}(/[a-b])?|[a-b]/manifest\.parquet", fullmatch=True)))
def test_no_key_takes_the_place_of_the_manifest(keys: set[bytes]) -> None:
    names = {link_name(key) for key in keys}
    assert len(names) == len(keys)
    assert not any(name.split(b"/")[0] == b"manifest.parquet" for name in names)


def test_every_flipped_byte_of_the_data_is_found(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    Manifest.from_entries(ENTRIES, b"/data").write(path)
    whole = path.read_bytes()
    accepted, sentences = 0, []
    for position in range(4, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x20]) + whole[position + 1 :])
        try:
            accepted += list(Manifest.read(path).entries()) != ENTRIES
        except (RunError, UsageError) as error:
            sentences.append(str(error))
    assert accepted == 0
    assert len(sentences) > 50
    assert not any("\n" in sentence for sentence in sentences)


def test_damaged_missing_foreign_and_newer_manifests(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    with pytest.raises(RunError, match="does not exist: run partition_dataset again"):
        Manifest.read(path)
    path.write_bytes(b"")
    with pytest.raises(RunError, match="is damaged"):
        Manifest.read(path)
    pq.write_table(pa.table({"key": ["a"]}), path)
    with pytest.raises(RunError, match="not a manifest of bulkinfer"):
        Manifest.read(path)
    Manifest.from_entries(ENTRIES, b"/data").write(path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"format": b"4"}), path)
    with pytest.raises(UsageError, match="has format 4; this bulkinfer reads formats up to 3"):
        Manifest.read(path)
    pq.write_table(table.slice(1).replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(RunError, match="does not match its hash"):
        Manifest.read(path)


def test_an_open_data_set_holds_no_records(tmp_path: Path) -> None:
    """A launcher keeps it for the whole job."""
    entries = [Entry(b"%07d.jpg" % number, number) for number in range(50_000)]
    publish_partitions(tmp_path / "datasets", b"/data", "manifest", entries, even_split(50_000, 2), {"source": "/data"})
    gc.collect()
    before = pa.total_allocated_bytes()
    dataset = open_dataset(tmp_path / "datasets")
    assert [partition.manifest.keys_sha256([Step(0, 0, 25_000)]) for partition in dataset.partitions] == [
        hash_keys([entries_table(share)]) for share in (entries[:25_000], entries[25_000:])
    ]
    assert pa.total_allocated_bytes() - before < 100_000
    assert dataset.num_records == 50_000


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    photos, output = tmp_path / "photos", tmp_path / "datasets"
    photos.mkdir()
    entries = [Entry(b"%d.jpg" % number, 3) for number in range(5)]
    for entry in entries:
        (photos / entry.key.decode()).write_bytes(b"abc")
    publish_partitions(output, os.fsencode(photos), "symlink", entries, even_split(len(entries), 3), {"source": str(photos)})
    return output


def test_open_partitions(partitioned: Path) -> None:
    dataset = open_dataset(partitioned)
    assert [partition.index for partition in dataset.partitions] == [0, 1, 2]
    assert [partition.manifest.num_records for partition in dataset.partitions] == [2, 2, 1]
    assert dataset.num_records == 5
    assert dataset.source.endswith("photos in 3 partitions")
    records = [record for partition in dataset.partitions for record in partition.manifest.records()]
    assert [record.key for record in records] == [b"%d.jpg" % number for number in range(5)]
    assert all(Path(os.fsdecode(record.place)).read_bytes() == b"abc" for record in records)
    assert dataset.scan is None


def test_open_a_plain_folder_as_partition_0(partitioned: Path) -> None:
    photos = partitioned.parent / "photos"
    (photos / "notes.txt").write_text("x")
    dataset = open_dataset(photos)
    assert [partition.index for partition in dataset.partitions] == [0]
    assert [record.place for record in dataset.partitions[0].manifest.records()] == [
        os.fsencode(photos / f"{number}.jpg") for number in range(5)
    ]
    assert dataset.scan is not None
    assert dataset.scan.not_pictures.total() == 1
    assert dataset.content_hash != open_dataset(partitioned).content_hash


def test_open_refuses_partitions_that_are_not_whole(partitioned: Path) -> None:
    (partitioned / "1").rename(partitioned.parent / "away")
    with pytest.raises(RunError, match="of 3 partitions 1 is missing"):
        open_dataset(partitioned)
    (partitioned.parent / "away").rename(partitioned / "1")
    (partitioned / "7").mkdir()
    with pytest.raises(RunError, match="7 is not one of the 3 partitions"):
        open_dataset(partitioned)
    (partitioned / "7").rmdir()
    os.replace(partitioned / "0/manifest.parquet", partitioned / "2/manifest.parquet")
    with pytest.raises(RunError, match=r"/0 has no manifest\.parquet: move that folder away and run partition_dataset again"):
        open_dataset(partitioned)
    (partitioned / "2/manifest.parquet").rename(partitioned / "0/manifest.parquet")
    Manifest.from_entries([Entry(b"other.jpg", 1)], b"", "symlink").write(partitioned / "2/manifest.parquet")
    with pytest.raises(RunError, match=r"2/manifest\.parquet does not match dataset\.json"):
        open_dataset(partitioned)
    with pytest.raises(UsageError, match="is one partition of a data set"):
        open_dataset(partitioned / "1")
    (partitioned / "dataset.json").unlink()
    with pytest.raises(RunError, match="partition_dataset did not finish; run it again"):
        open_dataset(partitioned)


def test_open_refuses_a_damaged_dataset_json(partitioned: Path) -> None:
    path = partitioned / "dataset.json"
    path.write_text(path.read_text()[:300])
    with pytest.raises(RunError, match="not JSON"):
        open_dataset(partitioned)
    path.write_text('{"content": "bulkinfer partitions", "format": 1}')
    with pytest.raises(RunError, match="is damaged"):
        open_dataset(partitioned)


DEEP = '{"content": "bulkinfer partitions", "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
DAMAGES = [
    ({"partitions": None}, "partitions is None, not list"),
    ({"partitions": 3}, "partitions is 3, not list"),
    ({"partitions": []}, "it names no partitions"),
    ({"partitions": [{"index": 0}]}, "partitions.0.content_hash is missing"),
    ({"partitions": [{"content_hash": 7}]}, "partitions.0.content_hash is 7, not str"),
    ({"partitions": ["x"]}, "partitions.0 is 'x', not dict"),
    ({"source": None}, "source is None, not str"),
    (None, "not JSON"),
]


@pytest.mark.parametrize(("change", "told"), DAMAGES)
def test_a_dataset_json_of_another_structure(partitioned: Path, change: dict[str, Any] | None, told: str) -> None:
    """Both commands say what is wrong; what they advise works."""
    path, photos = partitioned / "dataset.json", partitioned.parent / "photos"
    if change is None:
        path.write_text(DEEP)
    else:
        write_sealed(path, {**json.loads(path.read_text()), **change})
    sentence = rf"dataset\.json is damaged \({told}.*\): remove it and run partition_dataset again"
    with pytest.raises(RunError, match=sentence):
        open_dataset(partitioned)
    entries = [Entry(b"%d.jpg" % number, 3) for number in range(5)]
    arguments = (partitioned, os.fsencode(photos), "symlink", entries, even_split(5, 3), {"source": str(photos)})
    with pytest.raises(RunError, match=sentence):
        publish_partitions(*arguments)
    path.unlink()
    assert publish_partitions(*arguments).written == []
    assert open_dataset(partitioned).num_records == 5


@pytest.mark.parametrize("content", ["", "garbage", '{"images": []}', '{"format": 1}', None], ids=repr)
def test_a_dataset_json_that_is_not_ours_beside_partitions(partitioned: Path, content: str | None) -> None:
    path, photos = partitioned / "dataset.json", partitioned.parent / "photos"
    path.unlink()
    path.mkdir() if content is None else path.write_text(content)
    with pytest.raises(RunError, match=r"dataset\.json is damaged \(.*\): remove it and run partition_dataset again"):
        open_dataset(partitioned)
    entries = [Entry(b"%d.jpg" % number, 3) for number in range(5)]
    arguments = (partitioned, os.fsencode(photos), "symlink", entries, even_split(5, 3), {"source": str(photos)})
    with pytest.raises(UsageError, match=r"dataset\.json was not written by .*, or is damaged: move it away"):
        publish_partitions(*arguments)
    path.rmdir() if content is None else path.unlink()
    with pytest.raises(RunError, match=r"no dataset\.json: partition_dataset did not finish; run it again"):
        open_dataset(partitioned)
    assert publish_partitions(*arguments).written == []
    assert open_dataset(partitioned).num_records == 5


SHORTAGES = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
]


@pytest.mark.parametrize("error", SHORTAGES, ids=repr)
def test_lack_of_memory_or_threads_is_no_damage(partitioned: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def read(*_: Any) -> None:
        raise error

    monkeypatch.setattr(BoundedParquet, "read", read)
    with pytest.raises(UnreadableError, match=rf"0/manifest\.parquet cannot be read \({str(error) or 'MemoryError'}\)"):
        open_dataset(partitioned)
    with pytest.raises(UnreadableError):  # and is not made again
        publish_partitions(partitioned, b"/photos", "symlink", [Entry(b"0.jpg", 3)], [(0, 1)], {})


def test_open_a_folder_without_pictures(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".x.jpg").write_text("x")
    with pytest.raises(UsageError, match=r"holds no pictures \(1 other file; 1 ignored\)"):
        open_dataset(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        open_dataset(tmp_path / "nowhere")
