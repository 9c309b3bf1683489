"""list_file.py: the keys of the lines of a list file, their order, and what is refused with its line number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.sources import list_file as listing
from bulkinfer.records.sources.list_file import Listing, read_list
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


def read(root: Path, content: bytes, output: str = "out") -> Listing:
    path = root.parent / "list.txt"
    path.write_bytes(content)
    return read_list(path, os.fsencode(root), os.fsencode(root.parent / output))


def entries(found: Listing, start: int = 0, end: int | None = None) -> list[Entry]:
    return list(Manifest.from_entries(found[start:end], found.root).entries())


def keys(found: Listing) -> list[bytes]:
    return [entry.key for entry in entries(found)]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b"a.jpg", b"a.jpg"),
        (b"./a.jpg", b"a.jpg"),
        (b"././/a/./b//c.jpg", b"a/b/c.jpg"),
        (b".//a.jpg", b"a.jpg"),
        (b"a/../b.jpg", b"b.jpg"),
        (b"a..b/..c/.d/e...jpg", b"a..b/..c/.d/e...jpg"),
        (b"./#1.jpg", b"#1.jpg"),
        (b"a#1.jpg", b"a#1.jpg"),
        (b" #.jpg", b" #.jpg"),
        (b"./  ", b"  "),
        (b" a .jpg ", b" a .jpg "),
        (b"caf\xe9/\xff.jpg", b"caf\xe9/\xff.jpg"),
        ("日本.jpg".encode(), "日本.jpg".encode()),
        (b"back\\slash.jpg", b"back\\slash.jpg"),
        (b"cr\rinside.jpg", b"cr\rinside.jpg"),
        (b"{root}/a.jpg", b"a.jpg"),
        (b"{root}//x/../a.jpg", b"a.jpg"),
        (b"//{root}/a.jpg", b"a.jpg"),
        (b"{root}/../photos/a.jpg", b"a.jpg"),
        (b"x" * 200 + b"/" + b"y" * 255, b"x" * 200 + b"/" + b"y" * 255),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_lines_and_their_keys(root: Path, line: bytes, key: bytes, end: bytes) -> None:
    line = line.replace(b"{root}", os.fsencode(root))
    assert keys(read(root, line + end)) == [key]
    assert keys(read(root, b"\xef\xbb\xbf" + line + end)) == [key]
    assert keys(read(root, b"# z\n\n" + line + (end or b"\n") + b"\r\n \t\n#\r\n")) == [key]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"../a.jpg", r"leads out of .*/photos"),
        (b"a/../../photos/a.jpg", "leads out of"),
        (b"..", "leads out of"),
        (b"/etc/a.jpg", r"/etc/a\.jpg is not in .*/photos: give the folder of all pictures as --data_dir"),
        (b"/a.jpg", "is not in"),
        (b"{root}/../a.jpg", "is not in"),
        (b"{root}x/a.jpg", "is not in"),
        (b".", "is the folder of the pictures itself"),
        (b"{root}/", "is the folder of the pictures itself"),
        (b"{root}", "is the folder of the pictures itself"),
        (b"x" * 256, "is longer than the longest possible path"),
        (b"x/" * 2200 + b"y", "is longer than the longest possible path"),
        (b"shards/7/a.jpg", "lies in a partition"),
        (b"./shards/0", "lies in a partition"),
    ],
)
def test_refusals_name_the_line(root: Path, line: bytes, why: str) -> None:
    line = line.replace(b"{root}", os.fsencode(root))
    with pytest.raises(UsageError, match=rf"--list_file: .*list\.txt line 5: (?s:.*){why}") as refused:
        read(root, b"1.jpg\n\n# comment\r\n2.jpg\n" + line + b"\n3.jpg\n", "photos/shards")
    assert "\n" not in str(refused.value)


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12345")


def test_c39_backslashes_separate_folders_where_no_file_has_the_literal_name(root: Path) -> None:
    put(root, "sub/a.jpg", "sub/deep/b.jpg", "lit\\eral.jpg", "lit/eral.jpg")
    listed = b"sub\\a.jpg\r\n.\\sub\\deep\\b.jpg\r\nlit\\eral.jpg\r\nabsent\\c.jpg\r\n"
    assert sorted(keys(read(root, listed))) == sorted([b"absent\\c.jpg", b"lit\\eral.jpg", b"sub/a.jpg", b"sub/deep/b.jpg"])


@pytest.mark.parametrize("slash", [b"\\", b"/"])
@pytest.mark.parametrize("drive", [b"C:", b"\\\\server\\share"])
def test_c39_absolute_paths_of_windows_lie_in_one_folder(root: Path, drive: bytes, slash: bytes) -> None:
    put(root, "img/x.jpg", "y.jpg")
    lines = [drive + b"\\data\\" + name for name in (b"img\\x.jpg", b"y.jpg", b"img\\gone.jpg")] + [
        drive + b"\\elsewhere\\y.jpg"
    ]
    if drive == b"C:":
        lines = [line.replace(b"\\", slash) for line in lines]
    found = read(root, b"\n".join(lines))
    assert keys(found) == sorted([b"img/x.jpg", b"y.jpg", b"img/gone.jpg", lines[3]])
    assert [entry.key for entry in entries(found.with_sizes()) if entry.size_bytes is None] == sorted(
        [b"img/gone.jpg", lines[3]]
    )


def test_c39_a_path_of_windows_cannot_lead_out(root: Path) -> None:
    put(root.parent, "secret.jpg")
    with pytest.raises(UsageError, match=r"line 1: .* leads out of"):
        read(root, b"..\\secret.jpg\n")


def test_other_files_beside_the_partitions_may_be_listed(root: Path) -> None:
    assert keys(read(root, b"shards/7a/a.jpg\nshards/b.jpg\nshards7/a.jpg\n", "photos/shards")) == [
        b"shards/7a/a.jpg",
        b"shards/b.jpg",
        b"shards7/a.jpg",
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "contains no paths"),
        (b"\n\r\n# a\n \n", "contains no paths"),
        (b"a.jpg\nb\0.jpg\n", "is not a text file"),
        ("a.jpg\n".encode("utf-16"), "is not a text file"),
        (b"x" * 100_000, "is not a text file"),
    ],
)
def test_files_that_are_no_lists(root: Path, content: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=rf"--list_file: .*list\.txt {why}"):
        read(root, content)


def test_files_that_cannot_be_read(root: Path) -> None:
    with pytest.raises(UsageError, match="gone cannot be read: No such file"):
        read_list(root / "gone", os.fsencode(root), b"out")
    with pytest.raises(UsageError, match="photos is a folder, not a file"):
        read_list(root, os.fsencode(root), b"out")
    with pytest.raises(UsageError, match="gone is not a folder: give the folder"):
        read_list(root / "list.txt", os.fsencode(root / "gone"), b"out")


def test_absolute_paths_in_any_spelling_of_the_root(root: Path) -> None:
    (root / "sub").mkdir()
    (root.parent / "alias").symlink_to(root)
    (root.parent / "inner").symlink_to(root / "sub")
    (root.parent / "list.txt").write_text(f"{root.parent}/alias/1.jpg\n{root}/2.jpg\n{root.parent}/inner/3.jpg\n./4.jpg\n")
    for given_root in (root, root.parent / "alias"):
        found = read_list(root.parent / "list.txt", os.fsencode(given_root), b"out")
        assert found.root == os.fsencode(root)
        assert keys(found) == [b"1.jpg", b"2.jpg", b"4.jpg", b"sub/3.jpg"]


def test_the_root_of_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("/a/b.jpg\nc.jpg\n//d.jpg\n")
    assert keys(read_list(tmp_path / "list.txt", b"/", b"/out")) == [b"a/b.jpg", b"c.jpg", b"d.jpg"]


def test_repeated_lines_are_dropped_and_told(root: Path) -> None:
    found = read(root, b"b.jpg\na.jpg\n./b.jpg\nx/../b.jpg\na.jpg\nc.jpg\n")
    assert keys(found) == [b"a.jpg", b"b.jpg", b"c.jpg"]
    assert (found.num_repeated, found.repeated) == (3, [b"a.jpg", b"b.jpg"])
    assert "dropped 3 repeated lines: a.jpg, b.jpg" in found.summary()
    assert "dropped" not in "".join(read(root, b"a.jpg\nb.jpg\n").summary())


def test_sizes_of_files_and_of_what_is_none(root: Path) -> None:
    (root / "empty.jpg").touch()
    (root / "folder").mkdir()
    (root / "folder/a.jpg").write_bytes(b"12345")
    (root / "link.jpg").symlink_to("folder/a.jpg")
    os.mkfifo(root / "pipe")
    found = read(root, b"pipe\nlink.jpg\ngone.jpg\nfolder/a.jpg\nfolder\nempty.jpg\n")
    assert [entry.size_bytes for entry in entries(found)] == [None] * 6
    assert list(found.known_sizes()) == [0] * 6
    assert "did not look at the files" in found.summary()[-1]
    looked = found.with_sizes()
    assert [(entry.key, entry.size_bytes) for entry in entries(looked)] == [
        (b"empty.jpg", 0),
        (b"folder", None),
        (b"folder/a.jpg", 5),
        (b"gone.jpg", None),
        (b"link.jpg", 5),
        (b"pipe", None),
    ]
    assert looked.missing == [b"folder", b"gone.jpg", b"pipe"]
    assert list(looked.known_sizes()) == [0, 0, 5, 0, 5, 0]
    assert entries(looked, 2, 4) == entries(looked)[2:4]
    assert entries(looked, 6) == []


def test_keys_that_share_a_hash_are_different_keys(root: Path) -> None:
    """Keys are compared whole: these pairs are equal under CRC-32, FNV-1a of 32 bits, and any hash of their sorted bytes."""
    pairs = [b"plumless", b"buckeroo", b"costarring", b"liquid", b"abc.jpg", b"cba.jpg", b"x" * 200 + b"1", b"x" * 200 + b"2"]
    found = read(root, b"\n".join([*pairs, *pairs[:2]]))
    assert keys(found) == sorted(pairs)
    assert (found.num_repeated, found.repeated) == (2, [b"buckeroo", b"plumless"])


# without 0xEF, with which a byte order mark would begin: at the start of a file that is none of a name
NAMES = st.binary(min_size=1, max_size=6).filter(lambda name: not set(name) & set(b"\0\r\n/.#\xef") and name.strip(b" \t"))
LINES = st.lists(st.lists(NAMES | st.just(b"COCO_val2014_000000000042.jpg"), min_size=1, max_size=3), min_size=1, max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(paths=LINES, read_bytes=st.sampled_from([1, 5, 64, 1 << 20]), rows=st.integers(1, 70))
def test_any_blocks_give_what_python_gives(root: Path, paths: list[list[bytes]], read_bytes: int, rows: int) -> None:
    lines = [b"/".join(path) for path in paths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_READ_BYTES", read_bytes)
        patch.setattr(listing, "ROWS", rows)
        found = read(root, b"\n".join(lines))
        assert keys(found) == sorted(set(lines))
        assert found.num_repeated == len(lines) - len(set(lines))
        image_ids = [entry.image_id for entry in entries(found)]
    assert image_ids == [42 if key.endswith(b"COCO_val2014_000000000042.jpg") else None for key in keys(found)]
    expected = [Entry(key, None, image_id=image_id) for key, image_id in zip(sorted(set(lines)), image_ids, strict=True)]
    assert Manifest.from_entries(found[:], found.root).content_hash == Manifest.from_entries(expected, b"/").content_hash


ADDRESSES = [b"https://host/a%20b.jpg?w=1", b"s3://bucket/a b.jpg", b"s3://bucket/a/../b.jpg", b"gs://other/a.jpg"]


def test_addresses_are_keys_as_they_are_written(root: Path) -> None:
    found = read(root, b"# addresses\n\n" + b"\n".join([*ADDRESSES, ADDRESSES[0]]) + b"\n")
    assert keys(found) == sorted(ADDRESSES)
    assert found.num_repeated == 1
    assert [record.place for record in Manifest.from_entries(found[:], found.root).records()] == sorted(ADDRESSES)
    assert found.summary()[0] == "list names 4 pictures in stores"


def test_schemes_in_capitals_and_blanks_before_them(root: Path) -> None:
    assert keys(read(root, b"HTTP://Host/X.jpg\nhttp://Host/X.jpg\n S3://b/ c.jpg\n")) == [
        b"http://Host/X.jpg",
        b"s3://b/ c.jpg",
    ]
    assert keys(read(root, b"./s3//a.jpg\nS3/b.jpg\nhttp.jpg\n")) == [b"S3/b.jpg", b"http.jpg", b"s3/a.jpg"]


def test_addresses_below_the_root_are_relative_to_it(root: Path) -> None:
    path = root.parent / "list.txt"
    path.write_bytes(b"s3://bucket/set/a/1.jpg\nb/2.jpg\n./c.jpg\n")
    found = read_list(path, b"s3://bucket/set/", b"out")
    assert keys(found) == [b"a/1.jpg", b"b/2.jpg", b"c.jpg"]
    assert next(Manifest.from_entries(found[:], found.root).records()).place == b"s3://bucket/set/a/1.jpg"
    path.write_bytes(b"a.jpg\ns3://other/a.jpg\n")
    with pytest.raises(UsageError, match="line 2 is not below s3://bucket/set: leave out --data_dir"):
        read_list(path, b"s3://bucket/set/", b"out")
    path.write_bytes(b"s3://other/a.jpg\n")
    assert keys(read_list(path, b"s3://bucket/set/", b"out")) == [b"s3://other/a.jpg"]  # the root is only that of the list
    path.write_bytes(b"../a.jpg\n")
    with pytest.raises(UsageError, match=r"line 1: \.\./a.jpg leads out of s3://bucket/set"):
        read_list(path, b"s3://bucket/set", b"out")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a.jpg\nhttps://host/a.jpg\n", "names addresses, as in line 2, and paths, as in line 1: make a list of each"),
        (b"https://host/a.jpg\n\n#\nb.jpg\n", "names addresses, as in line 1, and paths, as in line 4"),
        (b"https://host/b.jpg\nhttps://ann:hidden@host/a.jpg\n", "line 2: https://host/a.jpg holds a user or password"),
        (b"https://host/a.jpg?Signature=hidden\n", "line 1: https://host/a.jpg?... holds a signature or key (Signature)"),
        (b"https://host/a.jpg 3\n", "line 1: https://host/a.jpg 3 has a blank in it"),
        (b"s3://b/a.jpg\ns3//b/b.jpg\n", "list.txt line 2 begins with 's3//': write s3://bucket/folder, or ./s3//..."),
        (b"\nhtps://ann:hidden@host/a.jpg\n", "list.txt line 2 begins with 'htps://', which is not read"),
        (b"file:///data/a.jpg\n", "list.txt line 1 begins with 'file:///': give the path alone"),
    ],
)
def test_addresses_that_are_refused(root: Path, content: bytes, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(root, content)
    assert words in str(caught.value)
    assert "hidden" not in str(caught.value)
