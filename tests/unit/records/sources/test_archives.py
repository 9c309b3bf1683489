"""archive_names.py and archives.py: what is called like an archive, and sets that are not whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.sources.archive_names import COMPRESSED, kind_by_name
from bulkinfer.records.sources.archives import KINDS, archive_at, check_names, kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.tar", "tar"), ("A.TAR", "tar"), ("x-00000-of-00012.tar", "tar"), ("x.tar-00000-of-00012", "tar"),
        ("a.tfrecord", "tfrecord"), ("a.tfrecords", "tfrecord"), ("a.tfrec", "tfrecord"), ("train-00000-of-01024", "tfrecord"),
        ("flowers_train_00000-of-00005.tfrecord", "tfrecord"), ("imagenet2012-train.tfrecord-00000-of-01024", "tfrecord"),
        ("a.ZIP", "zip"), ("train-00000-of-00005-2c1a.parquet", "parquet"), ("part-0.snappy.parquet", "parquet"),
        ("data-00000-of-00002.arrow", "arrow"), ("a.feather", "arrow"), (".bulkinfer-index.parquet", ""),
        ("part-00000-0000000000-0000000100.parquet", ""), ("part-00000-1e2f.c000.snappy.parquet", "parquet"),
        ("manifest.parquet", ""), ("manifest-00003.parquet", ""), ("_times.parquet", ""),
        ("a.parquet.gz", COMPRESSED),
        ("a.tar.gz", "tar.gz"), ("a.TGZ", "tar.gz"), ("x-00000-of-00012.tar.gz", "tar.gz"), ("a.tar.zst", COMPRESSED),
        ("a.tbz2", COMPRESSED), ("train-00000-of-01024.gz", COMPRESSED),
        ("a.tfrecord.zst", COMPRESSED),
        ("a.jpg", ""), ("a.jpg.gz", ""), ("page-1-of-2", ""), ("x-00000-of-00012.jpg", ""), ("target", ""), (".tar", "tar"),
    ],
)  # fmt: skip
def test_the_name_says_the_kind(name: str, expected: str) -> None:
    assert kind_by_name(os.fsencode(name)) == expected


def test_each_kind_is_read_by_its_module() -> None:
    assert all(callable(function) for name in KINDS for function in kind(name))
    with pytest.raises(UsageError, match="archives of kind 'rar' are not known here: install a newer bulkinfer"):
        kind("rar")


def names(stem: str, end: str, *numbers: int) -> list[bytes]:
    return [f"{stem}-{number:05d}-of-00004{end}".encode() for number in numbers]


def test_a_set_must_be_whole() -> None:
    check_names(b"/data", [*names("train", "", 0, 1, 2, 3), *names("a/b", ".tar", 3, 2, 1, 0), b"loose.tar"])
    with pytest.raises(UsageError) as caught:
        check_names(b"/data", [*names("train", "", 0, 1, 2, 3), *names("validation", ".tar.gz", 0, 3)])
    assert str(caught.value) == (
        "/data holds 2 of the 4 archives validation-*: validation-00001-of-00004.tar.gz, validation-00002-of-00004.tar.gz "
        "is missing: fetch it, or give a single archive as the place of the pictures"
    )


def test_a_compressed_archive_is_named() -> None:
    with pytest.raises(UsageError, match=r"^/data/a b\.zip\.gz is compressed, .* as with gunzip '/data/a b\.zip\.gz'$"):
        check_names(b"/data", [b"a b.zip.gz"])
    with pytest.raises(UsageError, match=r"as with bunzip2 /data/a\.tar\.bz2$"):
        check_names(b"/data", [b"a.tar.bz2"])


def test_a_archive_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"1234")
    os.utime(tmp_path / "a.tar", ns=(5, 7))
    archive = archive_at(os.fsencode(tmp_path), b"a.tar")
    assert (archive.path, archive.kind, archive.size_bytes, archive.mtime_ns) == (b"a.tar", "tar", 4, 7)
    with pytest.raises(UsageError, match=r"b\.tar cannot be read: No such file or directory: put it back"):
        archive_at(os.fsencode(tmp_path), b"b.tar")
