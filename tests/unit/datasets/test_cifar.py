"""CIFAR in both forms: pixels in place, and every broken file named."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.datasets import read_dataset
from bulkinfer.datasets.types import ArrayPictures
from bulkinfer.errors import UsageError

from tests.data_sets import cifar10_python, marked_rows, python2_names, python2_pickle, write_files
from tests.logged import logged

BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


def read(folder: Path, split: str = "train", name: str = "cifar10") -> ArrayPictures:
    found = read_dataset(name, folder, split)
    assert isinstance(found, ArrayPictures)
    return found


def refused(folder: Path, split: str = "train", name: str = "cifar10") -> str:
    with pytest.raises(UsageError) as error:
        read(folder, split, name)
    return str(error.value)


def check_marks(found: ArrayPictures, count: int) -> None:
    """The pictures of marked_rows(count), once or several times over."""
    assert found.images_NHWC.dtype == np.uint8
    for i, image in enumerate(found.images_NHWC):
        assert image.shape == (32, 32, 3)
        assert image[0, 5].tolist() == [i % count + 1, 100, 200]
        others = np.delete(image.reshape(-1, 3), 5, axis=0)
        assert (others == [10, 20, 30]).all()


def test_python_form(tmp_path: Path) -> None:
    write_files(tmp_path, cifar10_python(3))
    train, valid = read(tmp_path), read(tmp_path / "cifar-10-batches-py", "valid")
    check_marks(train, 3)
    check_marks(valid, 3)
    assert train.labels.tolist() == [0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6]
    assert valid.labels.tolist() == [5, 6, 7]
    assert train.labels.dtype == np.int64
    assert train.class_names == tuple("abcdefghij")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_python_form_pickled_anew(protocol: int, tmp_path: Path) -> None:
    rows = np.frombuffer(marked_rows(4), np.uint8).reshape(4, 3072)
    for order in (rows, np.asfortranarray(rows)):
        batch = pickle.dumps({"data": order, "fine_labels": [99, 0, 5, 7], "filenames": ["x"]}, protocol)
        write_files(tmp_path, {"train": batch, "test": batch})
        found = read(tmp_path, name="cifar100")
        check_marks(found, 4)
        assert found.labels.tolist() == [99, 0, 5, 7]
        assert found.class_names[:2] == ("apple", "aquarium_fish")
        assert len(found.class_names) == 100


def test_b61_binary_forms_are_planar(tmp_path: Path) -> None:
    row = marked_rows(1)
    files = {f"cifar-10-batches-bin/{name}.bin": b"\x07" + row for name in [*BATCHES, "test_batch"]}
    files["cifar-10-batches-bin/batches.meta.txt"] = "\n".join("jihgfedcba").encode() + b"\n\n"
    write_files(tmp_path, files)
    found = read(tmp_path)
    check_marks(found, 1)
    assert found.labels.tolist() == [7] * 5
    assert found.class_names == tuple("jihgfedcba")
    write_files(tmp_path, {"cifar-100-binary/train.bin": b"\x03\x63" + row, "cifar-100-binary/test.bin": b"\x13\x00" + row})
    check_marks(read(tmp_path, name="cifar100"), 1)
    assert read(tmp_path, name="cifar100").labels.tolist() == [99], "the second byte is the fine label"
    assert read(tmp_path, "valid", "cifar100").labels.tolist() == [0]


def test_b61_a_stray_byte_or_a_label_out_of_range(tmp_path: Path) -> None:
    record = b"\x07" + marked_rows(1)
    files = {f"{name}.bin": record * 2 for name in [*BATCHES, "test_batch"]}
    write_files(tmp_path, {**files, "data_batch_2.bin": record * 2 + b"\0"})
    told = refused(tmp_path)
    assert "data_batch_2.bin is damaged: after 2 records of 3,073 bytes, 1 bytes are left over at byte 6,146" in told
    write_files(tmp_path, {**files, "data_batch_2.bin": record + b"\x0a" + record[1:]})
    assert "data_batch_2.bin is damaged: picture 1 has label 10, but there are only the classes 0 to 9" in refused(tmp_path)
    write_files(tmp_path, {**files, "data_batch_4.bin": record})
    assert "data_batch_4.bin holds 1 pictures and data_batch_1.bin 2: one of them is cut off" in refused(tmp_path)
    write_files(tmp_path, {**files, "data_batch_1.bin": b""})
    assert "data_batch_1.bin is empty" in refused(tmp_path)
    (tmp_path / "data_batch_5.bin").unlink()
    assert "lacks data_batch_5.bin: the data set is incomplete" in refused(tmp_path)


def test_another_number_of_pictures_than_published_is_noted(tmp_path: Path) -> None:
    said: list[str] = []
    write_files(tmp_path, cifar10_python(1))
    logged(said, read_dataset, "cifar10", tmp_path, "valid")
    assert len(said) == 1
    assert said[0].endswith("test_batch holds 1 pictures, the published file 10,000")


ROWS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (b"", "it cannot be read as a pickle of numbers"),
        (b"\x80\x02}", "it cannot be read as a pickle of numbers"),
        (python2_pickle(marked_rows(2), [1, 2])[:4000], "it cannot be read as a pickle of numbers"),
        (python2_pickle(marked_rows(2), [1, 2]) + b".", "bytes follow the end of the pickle"),
        (python2_pickle(marked_rows(2), [1]), "it holds 2 pictures and 1 labels"),
        (python2_pickle(marked_rows(2), [1, -1]), "picture 1 has label -1"),
        (python2_pickle(marked_rows(2), [1, 2], b"Labels"), "its 'labels' is not a list of whole numbers"),
        (pickle.dumps({"data": ROWS, "labels": [1, 1 << 80]}), "picture 1 has label -1"),
        (pickle.dumps({"data": ROWS, "labels": [1, 1.5]}), "not a list of whole numbers"),
        (pickle.dumps({"data": ROWS.astype(np.int32), "labels": [1, 2]}), "not an array of N x 3072 bytes"),
        (pickle.dumps({"data": ROWS[:, :-1], "labels": [1, 2]}), "not an array of N x 3072 bytes"),
        (pickle.dumps({"data": ROWS[:0], "labels": []}), "holds no pictures"),
        (pickle.dumps([1, 2]), "it does not hold a dict"),
        (pickle.dumps({"data": np.array([{}]), "labels": [1]}), "an array of type 'O8'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_python_files_are_named(batch: bytes, reason: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"data_batch_1": b"", "test_batch": batch})
    told = refused(tmp_path, "valid")
    assert str(tmp_path / "test_batch") in told
    assert reason in told
    assert "\n" not in told


class _Runs:
    """Pickles as a call of something."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, Any]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    write_files(tmp_path, {"test_batch": pickle.dumps({"data": _Runs(Path.touch, mark)}, protocol)})
    assert "which has no place in a data set" in refused(tmp_path, "valid")
    write_files(tmp_path, {"test_batch": pickle.dumps({"data": _Runs(eval, f"open({str(mark)!r}, 'w')")}, protocol)})
    assert "eval, which has no place in a data set" in refused(tmp_path, "valid")
    assert not mark.exists()


def test_a_pickle_cannot_ask_for_memory_that_it_does_not_bring(tmp_path: Path) -> None:
    huge = b"\x80\2cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x8a\x08" + b"\xff" * 7 + b"\x7f\x85U\1b\x87R."
    write_files(tmp_path, {"test_batch": huge})
    assert "it does not hold a dict" in refused(tmp_path, "valid")
    write_files(tmp_path, {"test_batch": pickle.dumps({"data": _Runs(bytearray, 1 << 50)}, 2)})
    assert "bytes made of int" in refused(tmp_path, "valid")


def test_names_of_classes_must_fit(tmp_path: Path) -> None:
    write_files(tmp_path, cifar10_python(1))
    meta = tmp_path / "cifar-10-batches-py" / "batches.meta"
    meta.write_bytes(python2_names(b"label_names", ["a", "b"]))
    assert "batches.meta is damaged: it names 2 classes, not 10" in refused(tmp_path)
    meta.write_bytes(python2_names(b"names", ["a", "b"]))
    assert "its 'label_names' is not a list of names" in refused(tmp_path)
    meta.unlink()
    assert read(tmp_path).class_names[0] == "airplane"


def test_a_folder_without_the_set(tmp_path: Path) -> None:
    assert "holds no cifar-10-batches-py or cifar-10-batches-bin" in refused(tmp_path)
