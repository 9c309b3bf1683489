"""partition_dataset --mode tar and tfrecord: what other readers find in the archives, what stays, and what is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import PartitionConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.partitions import pack_archives
from bulkinfer.records.partitions.make_partitions import make_partitions
from bulkinfer.records.read_place import read_place

from tests import pictures
from tests.archives import picture_table, write_arrow, write_parquet, write_tar, write_tar_gz, write_tfrecord, write_zip

MODES = ("tar", "tfrecord")
CLASSES = ("ant", "bee", "cat")


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def photos(count: int) -> dict[str, bytes]:
    """Pictures in class folders, all different."""
    return {f"{CLASSES[n % 3]}/{n:03d}.jpg": pictures.jpeg(16 + n % 5, 16, n) for n in range(count)}


def pack(folder: Path, mode: str, output: str = "packed", **options: Any) -> bool:
    words = {"labels": "folders", **options}
    return make_partitions(PartitionConfig(data_dir=str(folder), output=str(folder.parent / output), mode=mode, **words))


def archives(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "-of-" in path.name)


def kept(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def by_webdataset(paths: list[Path]) -> list[tuple[str, bytes, int]]:
    import webdataset

    found = []
    for sample in webdataset.WebDataset([str(path) for path in paths], shardshuffle=False):
        found.append((f"{sample['__key__']}.jpg", sample["jpg"], int(sample["cls"])))
    return found


def by_tfrecord(paths: list[Path]) -> list[tuple[str, bytes, int]]:
    from tfrecord import tfrecord_loader

    return [
        (bytes(each["image/filename"]).decode(), bytes(each["image/encoded"]), int(each["image/class/label"][0]) - 1)
        for path in paths
        for each in tfrecord_loader(str(path), None)
    ]


LEAVES_FILES_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset does


@LEAVES_FILES_OPEN
@pytest.mark.parametrize(("mode", "read"), [("tar", by_webdataset), ("tfrecord", by_tfrecord)])
def test_other_readers_find_every_picture_as_it_was(tmp_path: Path, mode: str, read: Callable[..., Any]) -> None:
    """200 pictures, byte by byte, in the order of their keys, with their classes; ours finds the same."""
    files = photos(200)
    pictures.write_files(tmp_path / "train", files)
    assert pack(tmp_path / "train", mode)
    paths = [tmp_path / "packed" / name for name in archives(tmp_path / "packed")]
    expected = [(name, files[name], CLASSES.index(name[:3])) for name in sorted(files)]
    assert read(paths) == expected
    (partition,) = open_dataset(tmp_path / "packed").partitions
    ours = [(record.key.decode().partition("/")[2], read_place(record.place, 1 << 20), record.label)
            for record in partition.manifest.records()]  # fmt: skip
    assert ours == expected
    assert (tmp_path / "packed" / "labels.txt").read_text() == "ant\nbee\ncat\n"


@pytest.mark.parametrize("mode", MODES)
def test_archives_of_a_wanted_size(tmp_path: Path, mode: str) -> None:
    files = {f"ant/{n}.bmp": b"BM" + bytes([n]) * 299_998 for n in range(7)} | {"bee/x.bmp": b"BM" + b"x" * 2_000_000}
    pictures.write_files(tmp_path / "photos", files)
    pack(tmp_path / "photos", mode, archive_mb=1)
    names = archives(tmp_path / "packed")
    end = ".tar" if mode == "tar" else ""
    assert names == [f"photos-{number:05d}-of-00004{end}" for number in range(4)]
    sizes = [(tmp_path / "packed" / name).stat().st_size for name in names]
    assert max(sizes[:3]) <= 1_000_000 + (10_240 if mode == "tar" else 0)  # a tar file ends at a multiple of that
    assert sizes[3] > 2_000_000, "a picture is not cut"
    assert len(open_dataset(tmp_path / "packed").partitions[0].manifest.lines) == 8


@pytest.mark.parametrize("mode", MODES)
def test_a_second_run_changes_nothing_and_one_that_was_cut_short_goes_on(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pictures.write_files(
        tmp_path / "val", {f"{name}/{n}.bmp": b"BM" + bytes([n]) * 400_000 for name in CLASSES for n in range(3)}
    )
    plain, left = pack_archives._write, [2]

    def full_disk(*words: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(*words)

    monkeypatch.setattr(pack_archives, "_write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        pack(tmp_path / "val", mode, archive_mb=1)
    assert len(archives(tmp_path / "packed")) == 2
    before = kept(tmp_path / "packed")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pack(tmp_path / "val", mode, archive_mb=1)
    after = kept(tmp_path / "packed")
    assert {name: after[name] for name in archives(tmp_path / "packed")[:2]} == {
        name: before[name] for name in archives(tmp_path / "packed")[:2]
    }
    assert [name.partition("-")[0] for name in archives(tmp_path / "packed")] == ["validation"] * 5
    pack(tmp_path / "val", mode, archive_mb=1)
    assert kept(tmp_path / "packed") == after
    assert caplog.records[-1].message == "nothing to do: all archives exist already"
    (tmp_path / "val" / "ant" / "0.bmp").write_bytes(b"BM" + b"x" * 400_001)
    pack(tmp_path / "val", mode, archive_mb=1)
    changed = {name for name, inode in kept(tmp_path / "packed").items() if after[name] != inode}
    assert {name for name in changed if "-of-" in name} == {archives(tmp_path / "packed")[0]}


@pytest.mark.parametrize("mode", MODES)
def test_both_splits_have_the_classes_of_the_first(tmp_path: Path, mode: str) -> None:
    pictures.write_files(tmp_path / "train", photos(9))
    pictures.write_files(tmp_path / "val", {"cat/1.jpg": pictures.jpeg(), "ant/2.jpg": pictures.jpeg()})
    pack(tmp_path / "train", mode)
    pack(tmp_path / "val", mode)
    records = list(open_dataset(tmp_path / "packed").partitions[0].manifest.records())
    assert [record.label for record in records] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 2]
    pictures.write_files(tmp_path / "test", {"dog/1.jpg": pictures.jpeg()})
    with pytest.raises(UsageError, match=r"labels\.txt lacks the class dog of these pictures: pack the pictures of all"):
        pack(tmp_path / "test", mode)


@LEAVES_FILES_OPEN
def test_names_that_webdataset_would_take_for_others(tmp_path: Path) -> None:
    """Dots in names, equal names but for the extension, none at all: each is a sample of its own."""
    import webdataset

    jpeg, png = pictures.jpeg(), pictures.encode(pictures.solid())
    files = {"a.b.jpg": jpeg, "a_b.jpg": jpeg, "x.jpg": jpeg, "x.png": png, "plain": png, "sub.dir/y.v2.JPEG": jpeg}
    pictures.write_files(tmp_path / "photos", files)
    pack(tmp_path / "photos", "tar", labels="")
    (path,) = (tmp_path / "packed").glob("*.tar")
    found = {sample["__key__"]: {key: sample[key] for key in sample if not key.startswith("__")}
             for sample in webdataset.WebDataset(str(path), shardshuffle=False)}  # fmt: skip
    assert found == {
        "a_b": {"jpg": jpeg}, "a_b-2": {"jpg": jpeg}, "x": {"jpg": jpeg}, "x-2": {"png": png}, "plain": {"png": png},
        "sub.dir/y_v2": {"jpeg": jpeg},
    }  # fmt: skip
    assert open_dataset(tmp_path / "packed").num_records == len(files)


def test_equal_pictures_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        pictures.write_files(tmp_path / name / "photos", photos(5))
        for mode in MODES:
            pack(tmp_path / name / "photos", mode, mode)
    for mode in MODES:
        (one,), (two,) = ((tmp_path / name / mode).glob("*-of-*") for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("mode", MODES)
def test_pictures_that_are_not_there_are_left_out_and_named(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    pictures.write_files(tmp_path / "photos", photos(3))
    (tmp_path / "photos" / "ant" / "gone.jpg").symlink_to("nowhere")
    assert not pack(tmp_path / "photos", mode)
    assert open_dataset(tmp_path / "packed").num_records == 3
    assert caplog.records[-1].message == "left out, missing or not accessible: 1 picture: ant/gone.jpg"


ARCHIVES: dict[str, Callable[[Path, dict[str, bytes], dict[str, int]], object]] = {
    ".tar": write_tar,
    ".tar.gz": write_tar_gz,
    ".zip": write_zip,
    ".parquet": lambda path, files, labels: write_parquet(path, picture_table(files, labels, CLASSES)),
    ".arrow": lambda path, files, labels: write_arrow(path, picture_table(files, labels, CLASSES)),
    ".tfrecord": lambda path, files, labels: write_tfrecord(path, files, {name: n + 1 for name, n in labels.items()}),
}


@pytest.mark.parametrize("end", ARCHIVES)
@pytest.mark.parametrize("mode", MODES)
def test_pictures_of_archives_are_packed_again(tmp_path: Path, end: str, mode: str) -> None:
    """Byte by byte and with their labels; an empty file as well."""
    files = photos(6) | {"bee/empty.jpg": b""}
    labels = {name: CLASSES.index(name[:3]) for name in files}
    (tmp_path / "data").mkdir()
    ARCHIVES[end](tmp_path / "data" / f"x{end}", files, labels)
    assert pack(tmp_path / "data", mode, labels="")
    (partition,) = open_dataset(tmp_path / "packed").partitions
    found = {record.key.rpartition(b"/")[2].decode(): record for record in partition.manifest.records()}
    assert {name: record.label for name, record in found.items()} == {
        name.rpartition("/")[2]: label for name, label in labels.items()
    }
    for name, data in files.items():
        if data:
            assert read_place(found[name.rpartition("/")[2]].place, 1 << 20) == data
    assert pack(tmp_path / "data", mode, labels="")  # changes nothing


def test_rows_without_a_picture_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_parquet(tmp_path / "data" / "x.parquet", picture_table({**photos(3), "none.jpg": None}))
    assert not pack(tmp_path / "data", "tar", labels="")
    assert open_dataset(tmp_path / "packed").num_records == 3
    assert caplog.records[-1].message == "left out, missing or not accessible: 1 picture: x.parquet/none.jpg"


def test_a_member_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = photos(3)
    data = write_zip(tmp_path / "data" / "x.zip", files).read_bytes()
    first = next(iter(files.values()))
    (tmp_path / "data" / "x.zip").write_bytes(data.replace(first, first[:-1] + b"?"))
    with pytest.raises(RunError, match=r"x\.zip/ant/000\.jpg cannot be read \(.*checksum\): repair or remove it"):
        pack(tmp_path / "data", "tar", labels="")
    assert not (tmp_path / "packed").exists()


def test_refusals(tmp_path: Path) -> None:
    pictures.write_files(tmp_path / "photos", photos(3))
    pack(tmp_path / "photos", "tar")
    with pytest.raises(UsageError, match=r"holds photos-00000-of-00001\.tar of another packing, by --archive_mb or --mode"):
        pack(tmp_path / "photos", "tfrecord")
    make_partitions(PartitionConfig(data_dir=str(tmp_path / "photos"), output=str(tmp_path / "parts")))
    with pytest.raises(UsageError, match="parts holds partitions: give another folder for the archives"):
        pack(tmp_path / "photos", "tar", "parts")
    with pytest.raises(UsageError, match="--mode tar packs archives and makes no partitions: leave out --partitions"):
        PartitionConfig(mode="tar", partitions=2)
    with pytest.raises(UsageError, match="--archive_mb belongs to --mode tar and --mode tfrecord"):
        PartitionConfig(archive_mb=2)


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures.write_files(tmp_path / "photos", photos(3))

    def denied(*_: Any, **__: Any) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pack_archives, "read_bytes", denied)
    with pytest.raises(RunError, match=r"photos/ant/000\.jpg cannot be read \(Permission denied\): repair or remove it"):
        pack(tmp_path / "photos", "tar")
    assert archives(tmp_path / "packed") == []
