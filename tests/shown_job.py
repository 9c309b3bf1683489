"""A finished job for tests of what looks at jobs: sure and unsure rows, odd keys, and two error rows, in several parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bulkinfer.launch.launcher import launch
from PIL import Image

from tests import pictures
from tests.launches import config_of

GREY = "grey.png"  # as near to every colour: the score of each is 1/8
DARK_RED = "dark-red.png"  # red, but less sure than a solid one
ODD = 'odd "name", with\nline.png'
LATIN = b"latin-\xe9.png"
BROKEN, EMPTY = "broken.jpg", "empty.png"
NUM_OK, NUM_ERRORS = 14, 2  # ten solid colours and those above


def finished_job(folder: Path, **options: Any) -> Path:
    """Run the job in `folder`; returns its output. `options` are those of infer_launch."""
    options = {"save": ("topk", "embedding"), "batches_per_step": 1, "engine": "inline", **options}
    config = config_of(folder, photos=10, **options)
    red = pictures.encode(Image.new("RGB", (40, 40), (255, 0, 0)))
    photos = {
        GREY: pictures.encode(Image.new("RGB", (40, 40), (128, 128, 128))),
        DARK_RED: pictures.encode(Image.new("RGB", (40, 40), (200, 60, 60))),
        ODD: red,
        os.fsdecode(LATIN): red,
        BROKEN: b"not a picture",
        EMPTY: b"",
    }
    pictures.write_files(Path(config.data_dir), photos)
    result = launch(config)
    assert (result.exit_code, result.ok, result.errors) == (3, NUM_OK, NUM_ERRORS)
    assert result.output is not None
    return result.output
