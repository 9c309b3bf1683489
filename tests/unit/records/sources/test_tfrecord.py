"""tfrecord.py: the records of a file, its checksums, and what is no picture; beside the package tfrecord."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.tf_example import example_class, example_of, parsed, values
from bulkinfer.records.sources.tfrecord import checksum, frame_of, list_pictures, picture_in

from tests import pictures
from tests.archives import write_tfrecord

JPEG = pictures.jpeg(24, 16)


def listed(path: Path) -> list[ListedPicture]:
    with path.open("rb") as file:
        return list(list_pictures(file, os.fsencode(path), Counter()))


def picture_at(path: Path, found: ListedPicture) -> bytes:
    return picture_in(path.read_bytes()[found.offset : found.offset + found.span])


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        listed(path)
    return str(caught.value).removeprefix(f"{path} ")


def reason(path: Path, found: ListedPicture) -> str:
    with pytest.raises(RecordError) as caught:
        picture_at(path, found)
    assert caught.value.stage == "read"
    return caught.value.message


def write(path: Path, *records: bytes) -> Path:
    path.write_bytes(b"".join(map(frame_of, records)))
    return path


def test_the_checksum_is_that_of_tensorflow() -> None:
    """crc32c of RFC 3720, B.4, masked as in tensorflow/core/lib/hash/crc32c.h: rotated right by 15 bits, plus a constant."""
    for data, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)):
        assert checksum(data) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % (1 << 32)


def test_records_are_listed_with_what_they_say_of_themselves(tmp_path: Path) -> None:
    files = {"n01/a.jpg": JPEG, "b.png": b"png"}
    path = write_tfrecord(tmp_path / "x", files, {"n01/a.jpg": 3, "b.png": 0}, {"n01/a.jpg": "tench"})
    first, second = listed(path)
    assert (first.name, first.size_bytes, first.label, first.class_name) == (b"n01/a.jpg", len(JPEG), 3, "tench")
    assert (second.name, second.size_bytes, second.label, second.class_name) == (b"b.png", 3, 0, "")
    assert [picture_at(path, each) for each in (first, second)] == [JPEG, b"png"]
    assert second.offset == first.span


def test_a_record_without_a_name_of_its_own_is_called_by_its_number(tmp_path: Path) -> None:
    given = [{}, {"image/filename": b"a.jpg"}, {"image/filename": b"a.jpg"}, {"image/filename": b"../x"},
             {"image/filename": b"00000001"}, {"image/filename": b""}, {"image/filename": b"x\0y"}]  # fmt: skip
    path = write(tmp_path / "x", *(example_of({"image/encoded": JPEG, **more}) for more in given))
    assert [each.name for each in listed(path)] == [
        b"00000000", b"a.jpg", b"00000002", b"00000003", b"00000004", b"00000005", b"00000006"
    ]  # fmt: skip


def test_records_that_are_no_pictures_are_listed_and_say_why(tmp_path: Path) -> None:
    path = write(tmp_path / "x", example_of({"image/class/label": 1}), b"\xff\xff\xff", example_of({"image/encoded": b""}), b"")
    found = listed(path)
    assert [each.size_bytes for each in found] == [None, None, 0, None]
    assert [reason(path, each) for each in (found[0], found[1], found[3])] == [
        "the record has no image/encoded", "the record is no tf.train.Example", "the record has no image/encoded"
    ]  # fmt: skip
    assert picture_at(path, found[2]) == b""


@pytest.mark.parametrize("name", ["synset", "text"])
def test_the_class_is_named_by_its_id_first(tmp_path: Path, name: str) -> None:
    names = {"synset": b"n01440764", "text": b"tench"}
    shown = names if name == "synset" else {"text": b"tench"}
    path = write(tmp_path / "x", example_of({"image/encoded": JPEG, **{f"image/class/{n}": v for n, v in shown.items()}}))
    assert listed(path)[0].class_name == names[name].decode()


def test_one_flipped_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    """Of a file of three records: it is refused, or one record is an error; never another picture."""
    path = write_tfrecord(tmp_path / "x", {"a.jpg": b"first picture", "b.jpg": b"second", "c.jpg": b"the third one"})
    whole = path.read_bytes()
    sound = listed(path)
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        (hit,) = [number for number, each in enumerate(sound) if each.offset <= at < each.offset + each.span]
        message, found = "", list[ListedPicture]()
        try:
            found = listed(path)
        except UsageError as error:
            message = str(error)
        if message:
            refused += 1
            assert f"byte {sound[hit].offset}" in message or "first length" in message
        else:
            assert [each for number, each in enumerate(found) if number != hit] == sound[:hit] + sound[hit + 1 :]
            assert (found[hit].size_bytes, found[hit].offset, found[hit].span) == (None, *sound[hit][2:4])
        assert reason(path, sound[hit]) == "the record does not match its checksum", "also by who listed it before"
    assert refused == 3 * 12, "lengths, and their checksums"


def test_a_file_that_is_cut_off_is_refused_at_every_length(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", {"a.jpg": b"first", "b.jpg": b"second"})
    whole, (first, second) = path.read_bytes(), listed(path)
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        if length == first.span:
            assert listed(path) == [first], "nothing tells that there was another one"
            continue
        offset = first.offset if length < first.span else second.offset
        assert refusal(path).startswith(
            (f"is cut off in the record at byte {offset}, and has {length} bytes", "is no TFRecord")
        )


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"some text that is long enough")
    assert refusal(tmp_path / "x").startswith("is no TFRecord file, or is damaged")
    (tmp_path / "x").write_bytes(gzip.compress(frame_of(b"")))
    assert refusal(tmp_path / "x").endswith(f"as with mv {tmp_path}/x {tmp_path}/x.gz && gunzip {tmp_path}/x.gz")
    (tmp_path / "x").write_bytes(b"")
    assert listed(tmp_path / "x") == []


def test_boxes(tmp_path: Path) -> None:
    example = example_class()()
    example.features.feature["image/encoded"].bytes_list.value.append(JPEG)
    for side, numbers in (("xmin", (0.25, 0.5)), ("ymin", (0, 0.125)), ("xmax", (0.5, 1)), ("ymax", (0.75, 1))):
        example.features.feature[f"image/object/bbox/{side}"].float_list.value.extend(numbers)
    path = write(tmp_path / "x", example.SerializeToString())
    assert listed(path)[0].boxes == (0.25, 0, 0.5, 0.75, 0.5, 0.125, 1, 1)


def test_the_package_tfrecord_reads_what_we_write_and_writes_what_we_read(tmp_path: Path) -> None:
    """Beside each other: 200 pictures, byte by byte."""
    from tfrecord import TFRecordWriter, tfrecord_loader

    files = {f"{number:03d}.jpg": pictures.jpeg(20 + number % 7, 20, number) for number in range(200)}
    labels = {name: number % 11 for number, name in enumerate(files)}
    ours = write_tfrecord(tmp_path / "ours", files, labels)
    theirs = TFRecordWriter(str(tmp_path / "theirs"))
    for name, data in files.items():
        theirs.write({"image/encoded": (data, "byte"), "image/filename": (name.encode(), "byte"),
                      "image/class/label": (labels[name], "int")})  # fmt: skip
    theirs.close()
    read = [(bytes(each["image/filename"]).decode(), bytes(each["image/encoded"]), int(each["image/class/label"][0]))
            for each in tfrecord_loader(str(ours), None)]  # fmt: skip
    assert read == [(name, data, labels[name]) for name, data in files.items()]
    for path in (ours, tmp_path / "theirs"):
        found = [(each.name.decode(), picture_at(path, each), each.label) for each in listed(path)]
        assert found == read


def test_an_example_comes_back() -> None:
    features = {"image/encoded": JPEG, "n": -5, "image/filename": b"a"}
    assert example_of(features) == example_of(dict(reversed(features.items())))
    found = parsed(example_of(features))
    assert found is not None
    assert list(values(found, "image/encoded", "bytes_list")) == [JPEG]
    assert list(values(found, "n", "int64_list")) == [-5]
    assert list(values(found, "n", "bytes_list")) == list(values(found, "absent", "bytes_list")) == []
