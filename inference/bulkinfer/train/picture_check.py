"""`bulkinfer train --check_pictures`: decodes every picture before the first update and names all that cannot be used."""

from __future__ import annotations

import logging

import numpy as np

from bulkinfer.errors import UsageError
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.training import TrainingData

log = logging.getLogger("bulkinfer")


def check_pictures(data: TrainingData, ranks: Ranks, *, skips_bad: bool) -> None:
    """Log a line for every picture of training and validation that cannot be used; the ranks share the pictures.

    Raises UsageError on all ranks if there is one, unless such pictures are left out.
    """
    world = ranks.world
    parts = [(data.samples, data.chosen)]
    if data.held_out is not None:
        parts.append((data.held_out, np.arange(len(data.held_out.labels))))
    total, bad = sum(len(samples) for _, samples in parts), 0
    if world.is_first:
        log.info(f"check: {total:,} pictures")
    for pictures, samples in parts:
        for sentence in pictures.faults(samples[world.rank :: world.size]):
            bad += 1
            log.warning(f"warning: {sentence}")
    bad = sum(ranks.gather(bad))
    if bad and not skips_bad:
        raise UsageError(
            f"{bad:,} of {total:,} pictures cannot be used (each is named above): repair them, or leave them out with "
            "--on_bad_picture skip"
        )
    if world.is_first:
        log.info(f"check: {bad:,} of {total:,} pictures cannot be used" + (" and are left out" if bad else ""))
