"""Small pictures for the page, as data: addresses."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.insight.report.row_scan import Sample
from bulkinfer.insight.thumbnail import ThumbnailReader

_SIDE = 176  # pixels of the longer side
_QUALITY = 72  # of JPEG
_THREADS = 2  # each may take the memory of one decoded picture


@dataclass(frozen=True)
class Thumbnail:
    """A picture for the page: its address, width and height in pixels; or `reason`, why there is none."""

    source: str = ""
    width: int = 0
    height: int = 0
    reason: str = ""


class Thumbnails:
    """Makes thumbnails of the pictures of a job, below `data_dir`; `identity` and `columns` as ThumbnailReader takes them."""

    def __init__(self, data_dir: Path, identity: Mapping[str, Any], columns: tuple[str, ...] = ()) -> None:
        self._reader = ThumbnailReader(data_dir, identity, _SIDE, columns)

    def of_all(self, samples: Sequence[Sample]) -> dict[Sample, Thumbnail]:
        """The thumbnails of the pictures of some rows, made in threads."""
        with ThreadPoolExecutor(_THREADS) as threads:
            return dict(zip(samples, threads.map(self.of, samples), strict=True))

    def of(self, sample: Sample) -> Thumbnail:
        """The thumbnail of a row's picture."""
        image = self._reader.read(sample.key, sample.partition)
        if isinstance(image, str):
            return Thumbnail(reason=image)
        with io.BytesIO() as file:
            image.save(file, "JPEG", quality=_QUALITY, optimize=True)
            encoded = base64.b64encode(file.getvalue()).decode()
        return Thumbnail(f"data:image/jpeg;base64,{encoded}", image.width, image.height)
