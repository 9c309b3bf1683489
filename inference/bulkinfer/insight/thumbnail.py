"""A picture of a job in small, read and decoded as its launch read it; or why there is none."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.images.decode import decode, prepare_decoder
from bulkinfer.insight.picture_file import PictureFiles
from bulkinfer.records.read_place import read_place


class ThumbnailReader:
    """Reads pictures below `data_dir`, no side longer than `side` pixels. `identity` is that of the job: see JobFile; `columns`
    are what picture_columns gives of it.

    Changes how Pillow decodes in this process: see prepare_decoder. Any number of threads may read.
    """

    def __init__(self, data_dir: Path, identity: Mapping[str, Any], side: int, columns: tuple[str, ...] = ()) -> None:
        prepare_decoder()
        self._files, self._side, self._finding = PictureFiles(data_dir, columns), side, threading.Lock()
        self._orientation = str(identity.get("recipe", {}).get("orientation", "exif"))
        self._max_pixels = int(identity.get("max_pixels", LaunchConfig.max_pixels))

    def read(self, key: bytes, partition: int) -> Image.Image | str:
        """The picture, RGB; or the reason why it cannot be shown: one bad picture costs one thumbnail."""
        try:
            with self._finding:
                place = self._files.place(key, partition)
            data = read_place(place, LaunchConfig.max_file_bytes)
            image = decode(data, orientation=self._orientation, max_pixels=self._max_pixels, at_least=self._side).image.copy()
        except BulkinferError as error:
            return str(error)
        except OSError as error:  # of a manifest that cannot be opened
            return os_error_sentence(error)
        image.thumbnail((self._side, self._side))
        return image
