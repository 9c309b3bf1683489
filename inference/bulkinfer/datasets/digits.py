"""The handwritten digits of scikit-learn: digits.csv.gz one line per picture, 64 grey values from 0 to 16 and a label."""

from __future__ import annotations

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bulkinfer.datasets.types import ArrayPictures, check_labels, count_notes, open_regular
from bulkinfer.errors import UsageError, first_line
from bulkinfer.types import Array, shell_word

_NAMES = ("digits.csv.gz", "digits.csv")
_SIDE, _MOST_GREY = 8, 16
_NUM_VALID, _PUBLISHED = 360, 1797
_CLASS_NAMES = tuple("0123456789")


def holds(data_dir: Path) -> bool:
    """Whether a folder holds the file."""
    return any((data_dir / name).is_file() for name in _NAMES)


def read(data_dir: Path, split: str) -> ArrayPictures:
    """The pictures of a split, N x 8 x 8 x 1; the 17 grey values are spread over 0 to 255. The last 360 are for validation.

    Raises UsageError that names the first wrong line, or the folder to give where the file is missing.
    """
    path = next((data_dir / name for name in _NAMES if (data_dir / name).is_file()), None)
    if path is None:
        if place := installed_place():
            raise UsageError(f"{data_dir} holds no digits.csv.gz: give --data_dir {shell_word(place)}")
        raise UsageError(
            f"{data_dir} holds no digits.csv.gz: install scikit-learn, which has it in sklearn/datasets/data, or give the "
            "folder that holds it"
        )
    values = _values(path)
    check_labels(path, values[:, -1], len(_CLASS_NAMES))
    if len(values) <= _NUM_VALID:
        raise UsageError(f"{path} holds {len(values)} pictures: more than the {_NUM_VALID} validation pictures are needed")
    part = values[:-_NUM_VALID] if split == "train" else values[-_NUM_VALID:]
    greys = (part[:, :-1] * 255 + _MOST_GREY // 2) // _MOST_GREY
    images_NHWC = greys.astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1)
    return ArrayPictures(images_NHWC, part[:, -1].copy(), _CLASS_NAMES, count_notes(path, len(values), _PUBLISHED))


def installed_place() -> Path | None:
    """The folder of the installed scikit-learn that holds the file; None if there is none."""
    found = find_spec("sklearn")
    places = [Path(folder) / "datasets" / "data" for folder in (found and found.submodule_search_locations) or ()]
    return next(filter(holds, places), None)


def _values(path: Path) -> Array:
    """The numbers of the file as int64, N x 65."""
    with open_regular(path) as file:
        try:
            data = gzip.GzipFile(fileobj=file).read() if path.suffix == ".gz" else file.read()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{path} is damaged: it cannot be read to its end as a gzip file ({first_line(error)})") from None
    rows = []
    for number, line in enumerate(data.splitlines(), 1):
        words = line.split(b",")
        if len(words) != _SIDE * _SIDE + 1 or not all(word.isdigit() and len(word) < 4 for word in words):
            raise UsageError(f"{path} is damaged: line {number} is not {_SIDE * _SIDE + 1} small whole numbers between commas")
        row = [int(word) for word in words]
        if max(row[:-1]) > _MOST_GREY:
            raise UsageError(f"{path} is damaged: line {number} has a grey value of {max(row[:-1])}, above {_MOST_GREY}")
        rows.append(row)
    if not rows:
        raise UsageError(f"{path} is empty")
    return np.array(rows, np.int64)
