"""Boxes of the objects in training pictures, as shares of their width and height: left, top, right, bottom.

They come with the records of a TFRecord (`image/object/bbox/*`), or in imagenet_2012_bounding_boxes.csv beside the pictures: a
line has the name of a file and the four numbers of one box.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bulkinfer.datasets.types import open_regular
from bulkinfer.errors import UsageError
from bulkinfer.types import Array, printable

BOXES_FILE = "imagenet_2012_bounding_boxes.csv"


@dataclass(frozen=True, slots=True, eq=False)
class BoxTable:
    """The boxes of each picture of a data set: float32 numbers of all, four a box, and where those of each picture end.

    `ends` is int64 of N + 1 numbers that begins with 0.
    """

    corners: Array
    ends: Array

    @classmethod
    def of(cls, boxes: Iterable[Sequence[float]]) -> BoxTable:
        """The table of the boxes of each picture: four numbers for each box."""
        corners, ends = array("f"), array("q", [0])
        for numbers in boxes:
            corners.extend(numbers)
            ends.append(len(corners))
        return cls(np.frombuffer(corners, np.float32), np.frombuffer(ends, np.int64))

    def __getitem__(self, sample: int) -> Array:
        """The boxes of a picture, K x 4."""
        found: Array = self.corners[self.ends[sample] : self.ends[sample + 1]].reshape(-1, 4)
        return found


def listed_boxes(data_dir: Path, names: Iterable[bytes]) -> BoxTable | None:
    """The boxes of pictures by the base names of their files; None if there is no file of boxes in `data_dir`.

    Raises UsageError for a line that is none.
    """
    path = data_dir / BOXES_FILE
    if not path.exists():
        return None
    found: dict[bytes, list[float]] = {}
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            name, *numbers = line.strip().split(b",")
            if not name:
                continue
            try:
                left, top, right, bottom = map(float, numbers)
            except ValueError:
                shown = printable(line.strip()[:60])
                raise UsageError(
                    f"{path} line {number}: {shown} is no name with four numbers (left, top, right, bottom)"
                ) from None
            found.setdefault(name.rpartition(b"/")[2], []).extend((left, top, right, bottom))
    return BoxTable.of(found.get(name.rpartition(b"/")[2], ()) for name in names)
