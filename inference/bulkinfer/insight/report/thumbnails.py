"""Small pictures for the page, as data: addresses. They are read and decoded as a launch reads them."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.images.decode import decode, prepare_decoder, read_picture
from bulkinfer.insight.picture_file import PictureFiles
from bulkinfer.insight.report.row_scan import Sample

_SIDE = 176  # pixels of the longer side
_QUALITY = 72  # of JPEG


@dataclass(frozen=True)
class Thumbnail:
    """A picture for the page: its address, width and height in pixels; or `reason`, why there is none."""

    source: str = ""
    width: int = 0
    height: int = 0
    reason: str = ""


class Thumbnails:
    """Makes thumbnails of the pictures of a job, below `data_dir`. One bad picture costs one thumbnail.

    Changes how Pillow decodes in this process: see prepare_decoder.
    """

    def __init__(self, data_dir: Path, orientation: str, max_pixels: int) -> None:
        prepare_decoder()
        self._files, self._orientation, self._max_pixels = PictureFiles(data_dir), orientation, max_pixels

    def of(self, sample: Sample) -> Thumbnail:
        """The thumbnail of a row's picture."""
        try:
            data = read_picture(self._files.path(sample.key, sample.partition), LaunchConfig.max_file_bytes)
            image = decode(data, orientation=self._orientation, max_pixels=self._max_pixels, at_least=_SIDE).image.copy()
        except BulkinferError as error:
            return Thumbnail(reason=str(error))
        except OSError as error:  # of a manifest that cannot be opened
            return Thumbnail(reason=os_error_sentence(error))
        image.thumbnail((_SIDE, _SIDE))
        with io.BytesIO() as file:
            image.save(file, "JPEG", quality=_QUALITY, optimize=True)
            encoded = base64.b64encode(file.getvalue()).decode()
        return Thumbnail(f"data:image/jpeg;base64,{encoded}", image.width, image.height)
