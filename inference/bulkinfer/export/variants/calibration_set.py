"""Which pictures of a folder calibrate a network, and which judge it. They are prepared like those of a launch.

Shape letters: N pictures, H height, W width.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.types import Record, key_text
from bulkinfer.worker.loader import Limits, load_record
from bulkinfer.worker.metrics import Meter

log = logging.getLogger("bulkinfer")

MAX_PICTURES = 512  # with more, the ranges no longer change
MAX_BYTES = 128 << 20  # of all prepared pictures, which stay in memory
MIN_PICTURES = 32
_HELD_OUT_EVERY = 3
_TRIES = 4  # at most this many files are opened per picture wanted, so that a folder of broken files comes to an end


@dataclass(frozen=True)
class Sample:
    """Prepared pictures, uint8 N x H x W x 3, RGB, no two the same; `sha256` is the hash of all of them, in order."""

    calibrate_NHWC: NDArray[np.uint8]
    held_out_NHWC: NDArray[np.uint8]
    sha256: str


def sample_pictures(folder: str, recipe: Recipe, *, all_held_out: bool = False) -> Sample:
    """Choose up to MAX_PICTURES of a folder of pictures or of partitions; pictures that cannot be read are counted and logged.

    With `all_held_out` all of them judge and none calibrates. The choice depends on the names only, so that the same folder
    gives the same network. Raises UsageError if the folder is missing or has fewer than MIN_PICTURES different readable ones.
    """
    prepare_decoder()
    try:
        dataset = open_dataset(Path(folder))
    except UsageError as error:
        raise UsageError(f"--calibration_dir: {error}") from None
    for line in dataset.scan.unreadable_lines() if dataset.scan else ():
        log.info(line)
    wanted = most_pictures(recipe)
    images, repeated, failures = _load(_in_order_of_choice(dataset, _TRIES * wanted), recipe, wanted)
    counts = f"{len(images)} of {dataset.num_records} pictures in {folder}"
    if repeated:
        counts += f", {repeated} repeated ones left out"
    if failures:
        key, reason = failures[0]
        counts += f", {len(failures)} that cannot be read left out (such as {key_text(key)}: {reason})"
    if len(images) < MIN_PICTURES:
        raise UsageError(f"--calibration_dir: {counts}; at least {MIN_PICTURES} different ones are needed")
    every = 1 if all_held_out else _HELD_OUT_EVERY
    held_out = images[::every]
    calibrate = np.delete(images, np.s_[::every], axis=0)
    use = "all to judge" if all_held_out else f"{len(calibrate)} to calibrate, {len(held_out)} held out to judge"
    log.info(f"calibration: {counts}: {use}")
    return Sample(calibrate, held_out, hashlib.sha256(images.tobytes()).hexdigest())


def most_pictures(recipe: Recipe) -> int:
    """The most pictures that are taken from a folder."""
    return max(MIN_PICTURES, min(MAX_PICTURES, MAX_BYTES // (recipe.height * recipe.width * 3)))


def pictures_for(needed: int, held_out: int, clear: int) -> int | None:
    """How many pictures are needed so that `needed` of those held out are clear; None if none of this sample is.

    In this sample `clear` of `held_out` are; the same share is expected of more pictures.
    """
    return _HELD_OUT_EVERY * -(-needed * held_out // clear) if clear else None


def _in_order_of_choice(dataset: Dataset, count: int) -> Iterator[Record]:
    """The first `count` records in the order of their keys' hashes: in the order of names, neighbours often look alike."""
    order = (
        (hashlib.sha256(entry.key).digest(), partition.index, number)
        for partition in dataset.partitions
        for number, entry in enumerate(partition.manifest.entries())
    )
    manifests = {partition.index: partition.manifest for partition in dataset.partitions}
    for _, index, number in heapq.nsmallest(count, order):
        yield from manifests[index].records(number, number + 1)


def _load(records: Iterator[Record], recipe: Recipe, wanted: int) -> tuple[NDArray[Any], int, list[tuple[bytes, str]]]:
    """Up to `wanted` different pictures, the number of repeated ones, and key and reason of each that cannot be read."""
    limits = Limits(max_pixels=LaunchConfig.max_pixels, max_file_bytes=LaunchConfig.max_file_bytes)
    meter = Meter()
    images: list[NDArray[np.uint8]] = []
    seen, repeated, failures = set[bytes](), 0, list[tuple[bytes, str]]()
    for tried, record in enumerate(records):
        if len(images) == wanted or tried == _TRIES * wanted:
            break
        image = np.zeros((recipe.height, recipe.width, 3), np.uint8)
        try:
            load_record(record, recipe, limits, image, meter)
        except RecordError as error:
            failures.append((record.key, str(error)))
            continue
        if (digest := hashlib.sha256(image.tobytes()).digest()) in seen:
            repeated += 1
            continue
        seen.add(digest)
        images.append(image)
    shape = (len(images), recipe.height, recipe.width, 3)
    return (np.stack(images) if images else np.zeros(shape, np.uint8)), repeated, failures
