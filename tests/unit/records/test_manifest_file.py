"""manifest_file.py: a manifest is written and read a block at a time, and only where lines are used."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.records import manifest_file
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_file import FileLines, open_manifest
from bulkinfer.records.manifest_rows import ROWS, SCHEMA, Entry, Lines, TableLines, entries_table
from bulkinfer.types import Step

SIZE = 7 * ROWS + 1234
KEYS = [b"%08d.jpg" % number for number in range(SIZE)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of eight row groups, the last one short."""
    path = tmp_path_factory.mktemp("manifest") / "manifest.parquet"
    Manifest.from_entries((Entry(key, number) for number, key in enumerate(KEYS)), b"/data").write(path)
    return path


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read from now on."""
    read: list[int] = []
    plain = FileLines._row_group
    monkeypatch.setattr(
        FileLines, "_row_group", lambda self, file, index, *rest: (read.append(index), plain(self, file, index, *rest))[1]
    )
    return read


def lines_of(path: Path) -> FileLines:
    return open_manifest(path)[0]


def keys(lines: Lines, start: int, end: int) -> list[bytes]:
    return [key.encode() for block in lines.blocks(["key"], start, end) for key in block["key"].to_pylist()]


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 0), (SIZE, SIZE), (0, 1), (0, SIZE), (ROWS - 1, ROWS + 1), (ROWS, 2 * ROWS), (5, 2 * ROWS + 5), (SIZE - 1, SIZE)],
)
def test_any_range_in_blocks(path: Path, start: int, end: int) -> None:
    lines = lines_of(path)
    assert len(lines) == SIZE
    assert keys(lines, start, end) == KEYS[start:end]
    assert all(0 < len(block) <= ROWS for block in lines.blocks(["key"], start, end))
    assert [block.schema.names for block in lines.blocks(["image_id", "key"], 0, 1)] == [["image_id", "key"]]


def test_a_manifest_without_lines(tmp_path: Path) -> None:
    Manifest.from_entries([], b"/data").write(tmp_path / "manifest.parquet")
    read = Manifest.read(tmp_path / "manifest.parquet")
    assert (read.num_records, list(read.records()), read.size_bytes()) == (0, [], 0)


def test_only_the_row_groups_of_a_step_are_read_and_each_once_for_many_short_steps(path: Path, groups: list[int]) -> None:
    manifest = Manifest.read(path)
    groups.clear()
    for start in range(ROWS + 100, ROWS + 700, 6):
        assert [record.key for record in manifest.records(start, start + 6)] == KEYS[start : start + 6]
    assert groups == [1]
    assert [record.key for record in manifest.records(2 * ROWS - 2, 2 * ROWS + 2)] == KEYS[2 * ROWS - 2 : 2 * ROWS + 2]
    assert groups == [1, 2]


def test_row_groups_of_another_size_are_read_too(tmp_path: Path) -> None:
    """As bulkinfer wrote them before: a million lines in one."""
    path = tmp_path / "manifest.parquet"
    table = entries_table([Entry(key, 1) for key in KEYS])
    manifest = Manifest.from_entries(table, b"/data")
    manifest.write(path)
    metadata = pq.read_schema(path).metadata
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=len(table))
    read = Manifest.read(path)
    assert pq.read_metadata(path).num_row_groups == 1
    assert keys(read.lines, 0, SIZE) == KEYS
    assert all(len(block) <= ROWS for block in read.lines.blocks(SCHEMA.names, 0, SIZE))


def test_reading_and_hashing_hold_no_more_than_a_few_blocks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = entries_table([Entry(key, 1) for key in KEYS[:ROWS]]).nbytes
    gc.collect()
    before, held = pa.total_allocated_bytes(), list[int]()
    plain = FileLines._row_group

    def row_group(self: FileLines, *rest: Any) -> pa.Table:
        table = plain(self, *rest)
        held.append(pa.total_allocated_bytes() - before)
        return table

    monkeypatch.setattr(FileLines, "_row_group", row_group)
    manifest = Manifest.read(path)
    manifest.keys_sha256([Step(0, 0, SIZE)])
    assert len(held) > 8 * 4, "the keys and other columns of eight row groups, several times"
    assert max(held) < 4 * block
    assert pa.total_allocated_bytes() - before < block / 10, "what was read is not kept"
    assert manifest.num_records == SIZE


def test_a_file_that_was_replaced_or_is_gone_is_told(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    for entries in ([Entry(b"a.jpg", 1)], [Entry(b"b.jpg", 1)]):
        Manifest.from_entries(entries, b"/data").write(path)
        lines = lines_of(path)
        assert keys(lines, 0, 1) == [entries[0].key]
    Manifest.from_entries([Entry(b"a.jpg", 1)], b"/data").write(path)
    with pytest.raises(RunError, match=r"manifest\.parquet was replaced while it was in use: run the command again"):
        keys(lines, 0, 1)
    path.unlink()
    with pytest.raises(RunError, match="does not exist"):
        keys(lines, 0, 1)


def test_damage_that_comes_after_the_check_is_told_by_who_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    Manifest.from_entries([Entry(b"%d.jpg" % number, 1) for number in range(1000)], b"/data").write(path)
    manifest = Manifest.read(path)
    status = path.stat()
    column = pq.read_metadata(path).row_group(0).column(0)
    with path.open("r+b") as file:
        file.seek(column.dictionary_page_offset + column.total_compressed_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(RunError, match=r"manifest\.parquet is damaged"):
        list(manifest.records())


def test_the_file_is_known_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    manifest = Manifest.from_entries([Entry(b"a.jpg", 1)], b"/data")
    manifest.write(path)
    sha256 = lines_of(path).file_sha256()
    assert list(Manifest.read_again(path, manifest.content_hash, sha256).entries()) == [Entry(b"a.jpg", 1)]
    for hashes in ((manifest.content_hash, "0" * 64), ("0" * 64, sha256)):
        with pytest.raises(RunError, match=r"was replaced during the run: run the job again, with another --output"):
            Manifest.read_again(path, *hashes)


def test_tables_and_files_give_the_same_blocks(path: Path) -> None:
    table = entries_table([Entry(key, number) for number, key in enumerate(KEYS)])
    for columns in (SCHEMA.names, ["size_bytes"], ["key", "key_bytes"]):
        ranges = (columns, 7, 2 * ROWS + 3)
        assert pa.concat_tables(lines_of(path).blocks(*ranges)).equals(pa.concat_tables(TableLines(table).blocks(*ranges)))


def test_a_file_of_other_columns_is_refused_by_every_reader(tmp_path: Path) -> None:
    """Found by fuzzing: a worker's second look took it, and ended at its first record."""
    path = tmp_path / "manifest.parquet"
    Manifest.from_entries([Entry(b"a", 1)], b"/").write(path)
    pq.write_table(pq.read_table(path).drop_columns(["image_id"]), path)
    with pytest.raises(RunError, match="its columns are not those of a manifest"):
        Manifest.read_again(path, "", file_sha256(path))
    with pytest.raises(RunError, match="its columns are not those of a manifest"):
        Manifest.read(path)


@pytest.mark.parametrize("num_rows", [-5, 188_552_771_581, SIZE - 1, 1 << 28])
def test_a_wrong_number_of_lines_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int) -> None:
    """A changed byte of the footer, which no checksum covers: found by fuzzing, where one took all memory."""
    total = num_rows if num_rows == 1 << 28 else SIZE
    metadata = SimpleNamespace(row_group=lambda _index: SimpleNamespace(num_rows=num_rows), num_rows=total)
    metadata.num_row_groups = 1
    plain = BoundedParquet

    def damaged(*words: Any, **options: Any) -> Any:
        return SimpleNamespace(metadata=metadata, schema=plain(*words, **options).schema)

    monkeypatch.setattr(manifest_file, "BoundedParquet", damaged)
    with pytest.raises(
        RunError, match=rf"is damaged .row groups of {num_rows} lines, {total} in all.: run partition_dataset again"
    ):
        open_manifest(path)
