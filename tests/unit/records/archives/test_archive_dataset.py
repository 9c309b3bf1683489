"""archive_dataset.py, moved_pictures.py, and manifests over archives: opened, written, read, and found again after a change."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.moved_pictures import changed_archives, found_again
from bulkinfer.records.partitions.make_partitions import partition_dataset
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.folder import Unreadable
from bulkinfer.records.sources.tf_example import example_of
from bulkinfer.records.sources.tfrecord import frame_of
from bulkinfer.types import Member, Record

from tests import pictures
from tests.archives import write_parquet, write_tar, write_tfrecord

FILES = {f"{name}.jpg": name.encode() * 3 for name in "abcdef"}


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, labels: dict[str, Any] | None = None) -> Path:
    """Two archives of three pictures each."""
    names = list(FILES)
    write_tar(folder / "0.tar", {name: FILES[name] for name in names[:3]}, labels)
    write_tar(folder / "1.tar", {name: FILES[name] for name in names[3:]}, labels)
    return folder


def records(dataset: Dataset) -> list[Record]:
    return [record for partition in dataset.partitions for record in partition.manifest.records()]


def contents(found: list[Record]) -> dict[bytes, bytes]:
    return {record.key: read_place(record.place, 1000) for record in found}


EXPECTED = {b"%d.tar/%b.jpg" % (number, name): name * 3 for number, names in enumerate((b"abc", b"def"))
            for name in (bytes([byte]) for byte in names)}  # fmt: skip


def test_a_folder_a_single_archive_and_a_link_to_it(tmp_path: Path) -> None:
    data = write(tmp_path / "data", {"a.jpg": 2})
    dataset = open_dataset(data)
    assert contents(records(dataset)) == EXPECTED
    assert [record.label for record in records(dataset)] == [2, None, None, None, None, None]
    assert dataset.source == f"pictures in 2 archives of {data}"
    assert dataset.scan is not None
    assert dataset.scan.summary() == [f"found 6 pictures (1 kB) in 2 archives of {data}"]
    (tmp_path / "link.tar").symlink_to(data / "1.tar")
    for place in (data / "1.tar", tmp_path / "link.tar"):
        assert contents(records(open_dataset(place))) == {key: EXPECTED[key] for key in list(EXPECTED)[3:]}


def test_archives_below_other_folders_and_beside_pictures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tar(tmp_path / "data" / "a" / "b" / "0.tar", FILES)
    assert next(record.key for record in records(open_dataset(tmp_path / "data"))) == b"a/b/0.tar/a.jpg"
    pictures.write_files(tmp_path / "data", {"x.jpg": b"x", "old.tbz2": b"y"})
    assert [record.key for record in records(open_dataset(tmp_path / "data"))] == [b"x.jpg"]
    assert [record.message for record in caplog.records if "warning" in record.message] == [
        f"warning: not read: a/b/0.tar in {tmp_path / 'data'}, which holds pictures as well: to read archives, give a folder "
        "without other pictures"
    ]


def test_what_holds_no_pictures_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", {"notes.txt": b"x"})
    with pytest.raises(UsageError, match=r"the archive 0\.tar holds no pictures \(1 \.txt\): give archives of pictures"):
        open_dataset(tmp_path)
    (tmp_path / "0.tar").unlink()
    (tmp_path / "0.tfrecord").write_bytes(frame_of(example_of({"image": b"x"})))
    with pytest.raises(UsageError, match=r"no record of 1 archive of .* has a picture .*: give records of pictures"):
        open_dataset(tmp_path)
    (tmp_path / "0.tfrecord").rename(tmp_path / "0.tfrecord.gz")
    with pytest.raises(UsageError, match=r"0\.tfrecord\.gz is compressed"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("labels", ["folders", "table.csv"])
def test_other_labels_than_the_archives_own(tmp_path: Path, labels: str) -> None:
    """By the names within the archives, whichever those are in."""
    (tmp_path / "data").mkdir()
    write_tar(tmp_path / "data" / "0.tar", {"dog/a.jpg": b"a", "cat/b.jpg": b"b"}, {"dog/a.jpg": 7})
    write_tar(tmp_path / "data" / "1.tar", {"dog/c.jpg": b"c", "d.jpg": b"d"})
    (tmp_path / "table.csv").write_text("file,label\na.jpg,dog\nb.jpg,cat\ndog/c.jpg,dog\n")
    given = labels if labels == "folders" else str(tmp_path / labels)
    found = [record.label for record in records(open_dataset(tmp_path / "data", labels=given))]
    assert found == [1, 0, 1, None]


def test_a_manifest_over_archives_comes_back_from_its_file(tmp_path: Path) -> None:
    (partition,) = open_dataset(write(tmp_path / "data", {"b.jpg": 1})).partitions
    path = tmp_path / "manifest.parquet"
    partition.manifest.write(path)
    read = Manifest.read(path)
    assert list(read.records()) == list(partition.manifest.records())
    assert (read.archives, read.content_hash) == (partition.manifest.archives, partition.manifest.content_hash)
    assert list(read.records(4, 5)) == list(read.records())[4:5]
    for key in EXPECTED:
        assert read.find(key) == {record.key: record.place for record in read.records()}[key]
    assert read.find(b"0.tar/z.jpg") is None
    again = read.only(np.array([1, 5]))
    assert [record.place for record in again.records()] == [list(read.records())[number].place for number in (1, 5)]
    assert pq.read_schema(path).metadata[b"format"] == b"2", "an earlier version says that it is newer"


def test_a_manifest_that_names_what_is_not_there_is_damaged(tmp_path: Path) -> None:
    (partition,) = open_dataset(write(tmp_path / "data")).partitions
    manifest = partition.manifest
    path = tmp_path / "manifest.parquet"
    Manifest(manifest.lines, manifest.root, "manifest", manifest.content_hash, manifest.archives[:1]).write(path)
    with pytest.raises(RunError, match=r"is damaged \(its archives go from 0 to 1\)"):
        Manifest.read(path)


def test_partitions_over_archives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write(tmp_path / "data", {"b.jpg": 1})
    for _ in range(2):
        dataset = partition_dataset(data, partitions=4, output=tmp_path / "parts")
        assert [part.manifest.num_records for part in dataset.partitions] == [2, 2, 1, 1]
        assert contents(records(dataset)) == EXPECTED
    assert caplog.records[-1].message == "nothing to do: all partitions exist already"
    assert dataset.is_listed
    with pytest.raises(UsageError, match="--mode copy is for pictures in files of their own, and these lie in archives"):
        partition_dataset(data, output=tmp_path / "parts", mode="copy")
    sizes = [part.manifest.size_bytes() for part in partition_dataset(data, partitions=3, output=tmp_path / "parts",
                                                                      balance="bytes").partitions]  # fmt: skip
    assert sizes == [6, 6, 6]


def test_partitions_whose_archives_have_changed_are_still_those(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write(tmp_path / "data")
    before = partition_dataset(data, partitions=2, output=tmp_path / "parts")
    write_tar(data / "0.tar", {"first.jpg": b"new", "c.jpg": b"longer than before", "a.jpg": b"aaa"})
    after = open_dataset(tmp_path / "parts")
    assert (after.content_hash, after.is_listed) == (before.content_hash, False)
    found = records(after)
    assert [record.key for record in found] == list(EXPECTED)
    assert {record.key: read_place(record.place, 1000) for record in found if record.key != b"0.tar/b.jpg"} == {
        **{key: data for key, data in EXPECTED.items() if key != b"0.tar/b.jpg"}, b"0.tar/c.jpg": b"longer than before"
    }  # fmt: skip
    place = found[1].place
    assert isinstance(place, Member)
    assert place.offset == -1, "it is not there any more"
    assert [record.message for record in caplog.records if "changed" in record.message] == [
        "warning: changed since their pictures were listed: 0.tar; the pictures are looked for again, by name"
    ]
    (data / "1.tar").unlink()
    with pytest.raises(RunError, match=r"an archive of the data set is missing: .*1\.tar cannot be read"):
        open_dataset(tmp_path / "parts")


@pytest.mark.parametrize("is_damaged_first", [False, True])
def test_a_record_that_lost_its_name_is_found_where_it_was(tmp_path: Path, is_damaged_first: bool) -> None:
    """The name of a damaged TFRecord cannot be read: it is called by its number, whether the damage came or went since."""
    data = tmp_path / "data"
    path = write_tfrecord(data / "x.tfrecord", {"a.jpg": b"aaa", "b.jpg": b"bbb"})
    whole = path.read_bytes()
    damaged = whole.replace(b"bbb", b"bXb")
    first, second = (damaged, whole) if is_damaged_first else (whole, damaged)
    path.write_bytes(first)
    (partition,) = open_dataset(data).partitions
    path.write_bytes(second)
    os.utime(path, ns=(1, 1))
    assert changed_archives(partition.manifest) == [b"x.tfrecord"]
    manifest = found_again(partition.manifest)
    one, other = manifest.records()
    assert other.key == (b"x.tfrecord/00000001" if is_damaged_first else b"x.tfrecord/b.jpg")
    assert read_place(one.place, 100) == b"aaa"
    if is_damaged_first:
        assert read_place(other.place, 100) == b"bbb"
    else:
        with pytest.raises(Exception, match=r"the record does not match its checksum, at byte \d+ of x\.tfrecord"):
            read_place(other.place, 100)
    assert changed_archives(replace(manifest)) == []


def test_columns_that_the_user_names(tmp_path: Path) -> None:
    """Two columns of one file are two data sets, also where their pictures have equal names and sizes."""
    folder = tmp_path / "data"
    columns = {"left": [b"l0", b"l1"], "right": [b"r0", b"r1"], "kind": ["x", "y"], "label": [7, 8]}
    write_parquet(folder / "0.parquet", pa.table(columns))
    with pytest.raises(UsageError, match="has the pictures is not clear: give one of left, right as --image_column"):
        open_dataset(folder)
    left, right = (open_dataset(folder, image_column=name, label_column="kind") for name in ("left", "right"))
    for dataset, expected in ((left, [b"l0", b"l1"]), (right, [b"r0", b"r1"])):
        assert list(contents(records(dataset)).values()) == expected
        assert [record.label for record in records(dataset)] == [0, 1]
    assert left.content_hash != right.content_hash
    assert [record.label for record in records(open_dataset(folder, image_column="left"))] == [7, 8]
    parts = partition_dataset(folder, partitions=1, output=tmp_path / "parts", image_column="right")
    assert list(contents(records(parts)).values()) == [b"r0", b"r1"]
    os.utime(folder / "0.parquet", ns=(1, 1))
    assert list(contents(records(open_dataset(tmp_path / "parts"))).values()) == [b"r0", b"r1"]
    with pytest.raises(UsageError, match="--image_column is for a plain folder: give it to partition_dataset, which made"):
        open_dataset(tmp_path / "parts", image_column="left")


def test_columns_of_what_has_none(tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    about = r"is for files with columns \(Parquet, Arrow, CSV, JSON Lines\), and .*"
    with pytest.raises(UsageError, match=rf"^--label_column {about}data has none: leave it out$"):
        open_dataset(data, label_column="x")
    pictures.write_files(tmp_path / "photos", {"a.jpg": b"x"})
    with pytest.raises(UsageError, match=rf"^--image_column {about}photos has none: leave it out$"):
        open_dataset(tmp_path / "photos", image_column="x")
    (tmp_path / "list.txt").write_text("a.jpg\n")
    with pytest.raises(UsageError, match=rf"^--image_column {about}list\.txt has none: leave it out$"):
        partition_dataset(tmp_path / "photos", list_file=tmp_path / "list.txt", image_column="x", output=tmp_path / "out")


def shut(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Refuse access to files and folders of that name, also to root, who may read everything."""
    real_open, real_scandir = os.open, os.scandir

    def refuse(path: Any) -> None:
        if os.fsdecode(path).endswith(f"/{name}"):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    def opened(path: Any, *arguments: Any, **options: Any) -> int:
        refuse(path)
        return real_open(path, *arguments, **options)

    def searched(path: Any) -> Any:
        refuse(path)
        return real_scandir(path)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "scandir", searched)


@pytest.mark.parametrize("fault", ["archive", "folder", "link"])
def test_what_cannot_be_read_beside_archives_is_named(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    data = write(tmp_path / "data")
    if fault == "link":
        (data / "shut.tar").symlink_to("/nowhere/shut.tar")
    else:
        write_tar(data / ("shut.tar" if fault == "archive" else "shut/2.tar"), {"g.jpg": b"g"})
        shut(monkeypatch, "shut.tar" if fault == "archive" else "shut")
    dataset = open_dataset(data)
    assert contents(records(dataset)) == EXPECTED
    name, reason = "shut" if fault == "folder" else "shut.tar", "broken link" if fault == "link" else "Permission denied"
    assert dataset.scan is not None
    assert dataset.scan.unreadable_lines() == [f"unreadable, its pictures are missing: {name} ({reason})"]
    monkeypatch.chdir(tmp_path)
    partition_dataset(data, partitions=1)
    assert json.loads(Path("datasets", "dataset.json").read_text())["unreadable"] == 1
    assert f"unreadable, its pictures are missing: {name} ({reason})" in caplog.messages


def test_an_unreadable_archive_of_a_counted_set_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        write_tar(tmp_path / f"x-0000{number}-of-00002.tar", {f"{number}.jpg": b"x"})
    shut(monkeypatch, "x-00001-of-00002.tar")
    scan = open_dataset(tmp_path).scan
    assert scan is not None
    assert scan.unreadable == [Unreadable(b"x-00001-of-00002.tar", "Permission denied")]
