"""partition.py and links.py: the split, publishing, repairing, falling back, and what is refused."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bulkinfer.errors import LockedError, RunError, UsageError
from bulkinfer.files.atomic import temporary_path
from bulkinfer.host.process_identity import Table, this_table
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import ROWS, SCHEMA, Entry
from bulkinfer.records.partitions.links import WAYS
from bulkinfer.records.partitions.make_partitions import check_places
from bulkinfer.records.partitions.partition import Published, publish_partitions
from bulkinfer.records.partitions.split import even_split
from bulkinfer.records.sources.folder import scan_folder
from bulkinfer.records.sources.list_file import Listing, read_list

from tests.forms import long
from tests.temporaries import DEAD_PID, temporary_name


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for name in ("a.jpg", "b.jpg", "sub/a.jpg", "sub/deep/c.jpg", "z.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


def publish(photos: Path, output: Path, partitions: int = 2, mode: str = "symlink") -> Published:
    scan = scan_folder(photos)
    entries = [Entry(picture.key, picture.size_bytes) for picture in scan.pictures]
    return publish_partitions(output, scan.root, mode, entries, even_split(len(entries), partitions), {"source": str(photos)})


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every path below `folder` with type, inode, mtime and link target: equal trees were not touched."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        target = os.readlink(path) if path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, status.st_mtime_ns, target)
    return found


def contents(output: Path) -> dict[bytes, bytes]:
    records = [record for partition in open_dataset(output).partitions for record in partition.manifest.records()]
    return {record.key: Path(os.fsdecode(record.place)).read_bytes() for record in records}


@long
@pytest.mark.parametrize("partitions", [1, 8])
def test_a_list_of_many_blocks_is_published_a_block_at_a_time_and_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """What is held beyond the list does not grow with it: ten million records took 1.9 GB in one partition."""
    blocks, held = 10, list[int]()
    names = [b"%08d.jpg" % (number * 7 % (blocks * ROWS)) for number in range(blocks * ROWS)]
    (tmp_path / "list.txt").write_bytes(b"\n".join(names + names[:3]))
    found = read_list(tmp_path / "list.txt", os.fsencode(tmp_path), b"out")
    gc.collect()
    before, plain = pa.total_allocated_bytes(), Listing.block

    def block(self: Listing, columns: Sequence[str], start: int, end: int) -> pa.Table:
        held.append(pa.total_allocated_bytes() - before)
        return plain(self, columns, start, end)

    monkeypatch.setattr(Listing, "block", block)
    runs = []
    for written in (list(range(partitions)), []):
        done = publish_partitions(
            tmp_path / "out", found.root, "manifest", found, even_split(len(found), partitions), {"source": "x"}
        )
        assert (done.written, sum(done.sizes)) == (written, blocks * ROWS)
        runs.append(tree(tmp_path / "out"))
    assert runs[0] == runs[1]
    assert max(held) < 3 * plain(found, SCHEMA.names, 0, ROWS).nbytes
    manifests = [partition.manifest for partition in open_dataset(tmp_path / "out").partitions]
    assert [record.key for manifest in manifests for record in manifest.records()] == sorted(names)


@pytest.mark.parametrize("mode", ["symlink", "hardlink", "copy", "manifest"])
def test_every_mode_gives_the_pictures_and_a_second_run_changes_nothing(photos: Path, tmp_path: Path, mode: str) -> None:
    output = tmp_path / "out"
    published = publish(photos, output, mode=mode)
    assert published.written == [0, 1]
    assert published.sizes == [3, 2]
    names = [b"a.jpg", b"b.jpg", b"sub/a.jpg", b"sub/deep/c.jpg", b"z.jpg"]
    assert contents(output) == {name: name for name in names}
    assert (output / "0/sub/a.jpg").exists() == (mode != "manifest")
    assert (output / "0/a.jpg").is_symlink() == (mode == "symlink")
    before = tree(output)
    again = publish(photos, output, mode=mode)
    assert (again.written, again.repaired, again.removed) == ([], 0, [])
    assert again.ways == published.ways
    assert tree(output) == before


def test_links_are_absolute_and_without_links_on_the_way(photos: Path, tmp_path: Path) -> None:
    (photos / "link.jpg").symlink_to("sub/a.jpg")
    (tmp_path / "alias").symlink_to(photos)
    publish(tmp_path / "alias", tmp_path / "out", 1)
    assert os.readlink(tmp_path / "out/0/link.jpg") == str(photos / "sub/a.jpg")
    assert os.readlink(tmp_path / "out/0/a.jpg") == str(photos / "a.jpg")


def test_another_mode_or_other_pictures_are_made_again(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output, mode="hardlink")
    for mode in ("copy", "symlink", "manifest", "copy", "hardlink"):
        assert publish(photos, output, mode=mode).written == [0, 1], mode
        assert len(contents(output)) == 5
    (photos / "zz.jpg").write_bytes(b"zz.jpg")
    assert publish(photos, output, mode="hardlink").written == [1]
    assert sorted(os.listdir(output)) == ["0", "1", "dataset.json"]


@pytest.mark.parametrize("mode", ["symlink", "hardlink", "copy"])
def test_missing_and_wrong_links_are_repaired(photos: Path, tmp_path: Path, mode: str) -> None:
    output = tmp_path / "out"
    publish(photos, output, mode=mode)
    (output / "0/a.jpg").unlink()
    shutil.rmtree(output / "1/sub")
    (output / "1/z.jpg").unlink()
    (output / "1/z.jpg").write_bytes(b"something else")
    published = publish(photos, output, mode=mode)
    assert (published.written, published.repaired) == ([], 3)
    assert contents(output)[b"z.jpg"] == b"z.jpg"
    assert publish(photos, output, mode=mode).repaired == 0


def test_a_damaged_manifest_is_made_again(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output)
    (output / "1/manifest.parquet").write_bytes(b"junk")
    assert publish(photos, output).written == [1]
    assert len(contents(output)) == 5


STRANGERS = ["notes.txt", "sub/notes.txt", "mine/", "sub/deep/x/", "manifest.parquet_", f"sub/{temporary_name('aaaa')}"]


@pytest.mark.parametrize("mode", ["symlink", "hardlink", "copy", "manifest"])
@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("partitions", [1, 3])  # removed: 1; made again: 0 and 1
def test_a_partition_with_something_else_in_it_stays(
    photos: Path, tmp_path: Path, mode: str, stranger: str, partitions: int
) -> None:
    output = tmp_path / "out"
    publish(photos, output, 2, mode)
    found = output / "1" / stranger
    if stranger.endswith("/"):
        found.mkdir(parents=True)
    else:
        found.parent.mkdir(exist_ok=True)
        found.write_text("mine")
    before = tree(output)
    named = output / "1" / stranger.split("/")[0] if mode == "manifest" else found
    with pytest.raises(UsageError, match=f"{named} was not put there by partition_dataset: move it away"):
        publish(photos, output, partitions, mode)
    assert tree(output) == before
    assert publish(photos, output, 2, mode).written == []
    assert found.exists()
    shutil.rmtree(named) if named.is_dir() else named.unlink()
    publish(photos, output, partitions, mode)
    assert len(contents(output)) == 5


def test_a_link_to_a_folder_in_place_of_a_folder_is_no_folder_of_ours(photos: Path, tmp_path: Path) -> None:
    publish(photos, tmp_path / "out", 1)
    shutil.rmtree(tmp_path / "out/0/sub")
    (tmp_path / "out/0/sub").symlink_to(photos / "sub")
    with pytest.raises(UsageError, match="out/0/sub was not put there"):
        publish(photos, tmp_path / "out", 2)


def test_temporaries_in_a_partition_and_changed_copies_are_ours(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output, 2, "copy")
    (output / f"1/{temporary_name('aaaa')}").write_text("x")
    (output / "1/z.jpg").write_bytes(b"changed")
    assert publish(photos, output, 1, "copy").removed == [1]


@pytest.mark.parametrize("mode", ["symlink", "copy", "manifest"])
def test_under_a_damaged_manifest_the_source_tells_what_is_ours(photos: Path, tmp_path: Path, mode: str) -> None:
    output = tmp_path / "out"
    (photos / "zz.jpg").symlink_to("nowhere")
    publish(photos, output, 2, mode)
    (output / "1/manifest.parquet").write_bytes(b"junk")
    (output / "1/notes.txt").write_text("x")
    before = tree(output)
    with pytest.raises(UsageError, match=r"1/notes\.txt may not come from .*1/manifest\.parquet is damaged\): move it away"):
        publish(photos, output, 3, mode)
    assert tree(output) == before
    (output / "1/notes.txt").unlink()
    assert publish(photos, output, 3, mode).written == [0, 1, 2]
    (output / "2/manifest.parquet").write_bytes(b"junk")
    assert publish(photos, output, 1, mode).removed == [1, 2]


def test_a_partition_without_its_manifest_is_moved_away_and_made_again(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output)
    (output / "0/manifest.parquet").unlink()
    with pytest.raises(
        RunError, match=r"out/0 has no manifest\.parquet: move that folder away and run partition_dataset again"
    ):
        open_dataset(output)
    with pytest.raises(UsageError, match=r"out/0 was not made by partition_dataset .* move it away"):
        publish(photos, output)
    (output / "0").rename(tmp_path / "away")
    assert publish(photos, output).written == [0]
    assert len(contents(output)) == 5


def test_fewer_partitions_leave_no_stale_folder(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output, 8)
    assert publish(photos, output, 3).removed == [3, 4, 5, 6, 7]
    assert sorted(os.listdir(output)) == ["0", "1", "2", "dataset.json"]
    assert len(contents(output)) == 5


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_a_foreign_number_is_refused_by_name_before_anything_is_touched(photos: Path, tmp_path: Path, what: str) -> None:
    output = tmp_path / "out"
    publish(photos, output)
    (tmp_path / "else").mkdir()
    (tmp_path / "else/precious.txt").write_text("x")
    if what == "folder":
        (tmp_path / "else").rename(output / "3")
    elif what == "link":
        (output / "3").symlink_to(tmp_path / "else")
    else:
        (tmp_path / "else/precious.txt").rename(output / "3")
    before = tree(output)
    with pytest.raises(UsageError, match=r"out/3 was not made by partition_dataset"):
        publish(photos, output, 8)
    assert tree(output) == before


def test_a_foreign_dataset_json_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/dataset.json").write_text('{"images": []}')
    with pytest.raises(UsageError, match=r"dataset\.json was not written by partition_dataset"):
        publish(photos, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["dataset.json"]


def test_places_that_make_no_sense(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output)
    for source, target, sentence in (
        (photos, photos, "is the folder of the pictures itself"),
        (output, tmp_path / "other", "was made by partition_dataset"),
        (output / "0", tmp_path / "other", "was made by partition_dataset"),
        (output / "0/sub", output, "lies where partition 0 of"),
    ):
        with pytest.raises(UsageError, match=sentence):
            check_places(os.fsencode(source), os.fsencode(target))
    check_places(os.fsencode(photos), os.fsencode(tmp_path))


def refusing(code: int) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES])
@pytest.mark.parametrize(
    ("mode", "broken"), [("symlink", ["symlink"]), ("hardlink", ["link"]), ("symlink", ["symlink", "link"])]
)
def test_b22_the_next_way_said_once(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, broken: list[str], code: int
) -> None:
    output = tmp_path / "out"
    for name in broken:
        monkeypatch.setattr(os, name, refusing(code))
    published = publish(photos, output, mode=mode)
    assert len(published.fallbacks) == len(broken)
    assert os.strerror(code) in published.fallbacks[0]
    assert published.ways == {WAYS[mode][len(broken)]: 5}
    assert len(contents(output)) == 5
    before = tree(output)
    again = publish(photos, output, mode=mode)
    assert (again.written, again.repaired, again.fallbacks) == ([], 0, [])
    assert tree(output) == before


def test_b22_across_file_systems(photos: Path) -> None:
    other = Path("/dev/shm") / f"bulkinfer-test-{os.getpid()}"
    assert Path("/dev/shm").stat().st_dev != photos.stat().st_dev
    try:
        published = publish(photos, other, mode="hardlink")
        assert published.ways == {"copy": 5}
        assert published.fallbacks == ["hard links not possible (Invalid cross-device link): copies instead"]
        assert publish(photos, other, mode="hardlink").written == []
    finally:
        shutil.rmtree(other)


def test_b22_a_full_disk_leaves_no_half_made_partition(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    publish(photos, output, 1, "copy")
    before = tree(output)
    monkeypatch.setattr(shutil, "copy2", refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left on device"):
        publish(photos, output, 2, "copy")
    assert tree(output) == before


def test_a_picture_that_cannot_be_copied_becomes_a_link(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "copy2", refusing(errno.EACCES))
    published = publish(photos, tmp_path / "out", 1, "copy")
    assert published.ways == {"symlink": 5}
    assert published.fallbacks == ["copies not possible (Permission denied): symbolic links instead"]
    monkeypatch.undo()
    assert publish(photos, tmp_path / "out", 1, "copy").ways == {"copy": 5}


def test_missing_pictures_keep_their_records(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "taken").mkdir(parents=True)
    (photos / "taken/x.jpg").write_bytes(b"x")
    entries = [Entry(b"gone/1.jpg", None), Entry(b"taken", None), Entry(b"taken/x.jpg", 1)]
    for repeat in (False, True):
        published = publish_partitions(tmp_path / "out", os.fsencode(photos), "symlink", entries, [(0, 3)], {"source": "x"})
        assert published.ways == {"symlink": 2, "none": 1}
        assert published.written == ([] if repeat else [0])
        assert published.repaired == 0
    (records,) = [list(part.manifest.records()) for part in open_dataset(tmp_path / "out").partitions]
    assert len(records) == 3
    assert not os.path.exists(records[0].place)
    assert os.path.isfile(records[2].place)


def test_a_picture_named_like_the_manifest(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for name in ("manifest.parquet_/x.jpg", "sub/manifest.parquet"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    (photos / "manifest.parquet").write_bytes(b"\xff\xd8\xffmanifest.parquet")
    publish(photos, tmp_path / "out", 1)
    found = contents(tmp_path / "out")
    assert len(found) == 3
    assert all(content == b"\xff\xd8\xff" + name for name, content in found.items())
    assert Manifest.read(tmp_path / "out/0/manifest.parquet").num_records == 3


def test_leftovers_of_killed_runs_are_removed_and_only_those(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    publish(photos, output)
    dead = output / temporary_name("aaaa")
    shutil.copytree(output / "0", dead, symlinks=True)
    (output / temporary_name("bbbb")).mkdir()
    (output / f"{temporary_name('bbbb')}/{temporary_name('cccc')}").write_text("x")
    (output / temporary_name("dddd")).write_text("x")
    (output / temporary_name("eeee")).mkdir()
    (output / f"{temporary_name('eeee')}/precious.txt").write_text("x")
    (output / "_tmp-mine").mkdir()
    published = publish(photos, output)
    assert sorted(os.listdir(output)) == ["0", "1", temporary_name("eeee"), "_tmp-mine", "dataset.json"]
    assert published.left_over == [os.fsencode(output / temporary_name("eeee"))]


def test_two_runs_at_once(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    descriptor = os.open(output, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(LockedError, match="another partition_dataset is working on"):
            publish(photos, output)
    finally:
        os.close(descriptor)
    assert publish(photos, output).written == [0, 1]


def test_a_file_system_without_locks(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    elsewhere = Table("another host", "boot", "pid:[1]")
    for name in (temporary_path(output / "0").name, temporary_name("dddd"), temporary_name("eeee", table=elsewhere)):
        (output / name).mkdir(parents=True)
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    assert publish(photos, output).written == [0, 1]
    kept = sorted(path.name.split("-")[1:3] for path in output.glob("_tmp-*"))
    assert kept == sorted([[this_table().digest, str(os.getpid())], [elsewhere.digest, str(DEAD_PID)]])
    monkeypatch.undo()
    publish(photos, output)
    assert not list(output.glob("_tmp-*"))
