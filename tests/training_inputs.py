"""Pictures in class folders, and the trainings whose input bench --data_only measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.bench.options import BenchConfig
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.ranks.group import ALONE
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import set_up
from bulkinfer.train.training import Training
from PIL import Image


def class_folders(home: Path, count: int = 12, side: int = 96) -> Path:
    """Two classes of JPEGs."""
    random = np.random.default_rng(0)
    for split, number in (("train", count), ("val", 2)):
        for name in ("cat", "dog"):
            (home / split / name).mkdir(parents=True)
            for index in range(number):
                pixels = random.integers(0, 256, (side // 8, side // 8, 3), np.uint8)
                picture = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
                picture.save(home / split / name / f"{index}.jpg", quality=90)
    return home


def of_folder(home: Path, **options: Any) -> BenchConfig:
    """What bulkinfer bench --data_only takes, for small pictures and one thread."""
    words = {"data_dir": str(home), "model_name": "cifar_resnet8", "image_size": 32, "batch_size": 4, "num_workers": 1}
    return BenchConfig(data_only=True, **{**words, **options})


def training_of(config: BenchConfig) -> Training:
    """The training whose input is measured."""
    return set_up(with_defaults(with_data_found(config.train_config())), World(), ALONE)[0]
