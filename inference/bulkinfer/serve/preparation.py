"""Encoded pictures of requests become pictures as the graph takes them, by the code of the bulk path.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bulkinfer.errors import RecordError
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.preprocess import normalise
from bulkinfer.model.card import ModelCard
from bulkinfer.serve.batcher import Batcher, Work
from bulkinfer.worker.loader import Limits, load_bytes
from bulkinfer.worker.metrics import Meter


class Preparation:
    """Threads that decode and prepare pictures, each on its own; a prepared one goes to the batcher at once.

    A picture that fails leaves the others of its request alone.
    """

    def __init__(self, card: ModelCard, limits: Limits, num_workers: int, batcher: Batcher) -> None:
        prepare_decoder()
        self._card, self._limits, self._batcher = card, limits, batcher
        self._meter = Meter()
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="prepare")

    def put(self, work: Work, pictures: list[bytes]) -> None:
        """All pictures of a request: the bytes of picture files."""
        for index, data in enumerate(pictures):
            self._pool.submit(self._prepare, work, index, data)

    def close(self, *, abandon: bool = False) -> None:
        """Prepare what waits, or `abandon` it, and end the threads."""
        self._pool.shutdown(cancel_futures=abandon)

    def _prepare(self, work: Work, index: int, data: bytes) -> None:
        if work.future.cancelled():
            return
        recipe = self._card.recipe
        image_HWC = np.zeros((recipe.height, recipe.width, 3), np.uint8)
        try:
            load_bytes(data, recipe, self._limits, image_HWC, self._meter)
        except RecordError as error:
            work.fail(index, error.stage, error.message)
            return
        except BaseException as error:  # the request gets it
            work.end(error)
            return
        images = image_HWC[np.newaxis]
        self._batcher.put(work, index, images if self._card.input == "uint8" else normalise(images, recipe))
