"""`bulkinfer train --check_pictures`: decodes every picture before the first update and names all that cannot be used."""

from __future__ import annotations

import logging

import numpy as np

from bulkinfer.errors import UsageError
from bulkinfer.train.training import TrainingData

log = logging.getLogger("bulkinfer")


def check_pictures(data: TrainingData, *, skips_bad: bool) -> None:
    """Log a line for every picture of training and validation that cannot be used.

    Raises UsageError if there is one, unless such pictures are left out.
    """
    parts = [(data.samples, data.chosen)]
    if data.held_out is not None:
        parts.append((data.held_out, np.arange(len(data.held_out.labels))))
    total, bad = sum(len(samples) for _, samples in parts), 0
    log.info(f"check: {total:,} pictures")
    for pictures, samples in parts:
        for sentence in pictures.faults(samples):
            bad += 1
            log.warning(f"warning: {sentence}")
    if bad and not skips_bad:
        raise UsageError(
            f"{bad:,} of {total:,} pictures cannot be used (each is named above): repair them, or leave them out with "
            "--on_bad_picture skip"
        )
    log.info(f"check: {bad:,} of {total:,} pictures cannot be used" + (" and are left out" if bad else ""))
