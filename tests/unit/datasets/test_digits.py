"""scikit-learn's digits: greys spread, the last 360 kept for validation, broken lines named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from bulkinfer.datasets import digits, read_dataset
from bulkinfer.datasets.types import ArrayPictures
from bulkinfer.errors import UsageError

from tests.data_sets import write_files


def line(number: int) -> str:
    """Picture `number`: all greys 0 but the first, which is number % 17; the label is number % 10."""
    return ",".join(map(str, [number % 17, *[0] * 63, number % 10]))


LINES = [line(number) for number in range(370)]


def read(folder: Path, split: str) -> ArrayPictures:
    found = read_dataset("digits", folder, split)
    assert isinstance(found, ArrayPictures)
    return found


def test_the_last_360_are_validation(tmp_path: Path) -> None:
    write_files(tmp_path, {"digits.csv.gz": gzip.compress("\n".join(LINES).encode())})
    train, valid = read(tmp_path, "train"), read(tmp_path, "valid")
    assert train.labels.tolist() == list(range(10))
    assert len(valid) == 360
    assert valid.images_NHWC.shape == (360, 8, 8, 1)
    assert valid.labels[:3].tolist() == [0, 1, 2]
    assert train.class_names == tuple("0123456789")
    # 255 * grey / 16, rounded, half upwards
    assert train.images_NHWC[:10, 0, 0, 0].tolist() == [0, 16, 32, 48, 64, 80, 96, 112, 128, 143]
    assert valid.images_NHWC[6, 0, 0, 0] == 255, "picture 16, grey 16"
    assert not valid.images_NHWC[:, 1:].any()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([*LINES[:5], "1,2,3", *LINES], "line 6 is not 65 small whole numbers"),
        ([*LINES[:2], LINES[2].replace("2", "x", 1), *LINES], "line 3 is not 65 small whole numbers"),
        ([*LINES[:2], "17" + line(0)[1:], *LINES], "line 3 has a grey value of 17, above 16"),
        ([*LINES[:2], line(0)[:-1] + "10", *LINES], "picture 2 has label 10"),
        (LINES[:360], "holds 360 pictures: more than the 360 validation pictures are needed"),
        ([], "is empty"),
    ],
)
def test_broken_files_are_named(lines: list[str], reason: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"digits.csv": "\n".join(lines).encode()})
    with pytest.raises(UsageError) as error:
        read(tmp_path, "train")
    assert reason in str(error.value)
    assert str(tmp_path / "digits.csv") in str(error.value)


def test_half_a_gzip_file(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(LINES).encode())
    write_files(tmp_path, {"digits.csv.gz": packed[: len(packed) // 2]})
    with pytest.raises(UsageError, match=r"digits.csv.gz is damaged: it cannot be read to its end as a gzip file"):
        read(tmp_path, "valid")
    (tmp_path / "digits.csv.gz").unlink()
    with pytest.raises(UsageError, match=r"holds no digits.csv.gz"):
        read(tmp_path, "valid")


def test_where_the_file_is_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the installed scikit-learn, which is read then."""
    for folder, told in (
        (tmp_path, r"holds no digits\.csv\.gz: give"),
        (tmp_path / "data", "data does not exist: give the folder of the data set, as in"),
    ):
        with pytest.raises(UsageError, match=told) as error:
            read_dataset("digits", folder, "valid")
        place = Path(str(error.value).partition("--data_dir ")[2])
        assert read_dataset("digits", place, "valid").labels.shape == (360,)
    monkeypatch.setattr(digits, "find_spec", lambda _name: None)
    with pytest.raises(
        UsageError, match=r"holds no digits\.csv\.gz: install scikit-learn, which has it in sklearn/datasets/data, or"
    ):
        read(tmp_path, "train")
    with pytest.raises(UsageError, match=r"data does not exist: give the folder of the data set$"):
        read(tmp_path / "data", "train")


def test_scikit_learn_is_looked_for_only_where_the_folder_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []
    monkeypatch.setattr(digits, "find_spec", looked_for.append)
    write_files(tmp_path, {"digits.csv": "\n".join(LINES).encode()})
    assert len(read(tmp_path, "valid")) == 360
    with pytest.raises(UsageError, match="does not exist"):
        read_dataset("mnist", tmp_path / "data", "train")
    assert looked_for == []
