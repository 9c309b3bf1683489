"""preparation.py: encoded pictures become what the graph takes, by the code of the bulk path; each fails alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.images.preprocess import normalise
from bulkinfer.model.card import ModelCard, read_card
from bulkinfer.serve.batcher import Batcher, Work
from bulkinfer.serve.preparation import Preparation
from bulkinfer.worker.loader import Limits, load_bytes
from bulkinfer.worker.metrics import Meter

from tests import pictures
from tests.models import SIZE, write_tiny_model

PATIENCE_S = 60.0
LIMITS = Limits(max_pixels=1_000_000, max_file_bytes=1_000_000)


class Echo:
    """A network of batch 2 whose output is its input."""

    def __init__(self, shape: tuple[int, ...], dtype: type) -> None:
        self.batch_shape, self.dtype, self.proof, self.load_s, self.not_pinned = (2, *shape), np.dtype(dtype), {}, 0.0, ""

    def pin(self, images: Any) -> Any:
        return images

    def run(self, images: Any) -> dict[str, Any]:
        return {"same": images.astype(np.float32)}


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    return read_card(write_tiny_model(tmp_path) / "card.json")


@pytest.fixture(params=["uint8", "float32"])
def prepared(request: pytest.FixtureRequest, card: ModelCard) -> Iterator[tuple[Preparation, ModelCard]]:
    card = replace(card, input=request.param)
    echo = Echo((SIZE, SIZE, 3), np.uint8) if request.param == "uint8" else Echo((3, SIZE, SIZE), np.float32)
    batcher = Batcher([echo], 1, 0.0, observe=lambda pictures, seconds: None)
    preparation = Preparation(card, LIMITS, 2, batcher)
    yield preparation, card
    preparation.close()
    batcher.close()


def expected(data: bytes, card: ModelCard) -> Any:
    image_HWC = np.zeros((SIZE, SIZE, 3), np.uint8)
    load_bytes(data, card.recipe, LIMITS, image_HWC, Meter())
    return image_HWC if card.input == "uint8" else normalise(image_HWC[None], card.recipe)[0]


def test_pictures_are_prepared_as_in_a_job(prepared: tuple[Preparation, ModelCard]) -> None:
    preparation, card = prepared
    files = [pictures.jpeg(90 + n, 70, n) for n in range(5)]
    work = Work(5)
    preparation.put(work, files)
    answer = work.future.result(PATIENCE_S)
    assert answer.errors == {}
    for found, data in zip(answer.outputs["same"], files, strict=True):
        assert np.array_equal(found, expected(data, card).astype(np.float32))


def test_a_bad_picture_leaves_the_others_alone(prepared: tuple[Preparation, ModelCard]) -> None:
    preparation, card = prepared
    good, work = pictures.jpeg(90, 70, 1), Work(3)
    preparation.put(work, [good, b"no picture", pictures.jpeg(2000, 1000)])
    answer = work.future.result(PATIENCE_S)
    assert {index: stage for index, (stage, _) in answer.errors.items()} == {1: "decode", 2: "decode"}
    assert np.array_equal(answer.outputs["same"][0], expected(good, card).astype(np.float32))


def test_what_nobody_waits_for_is_not_prepared(prepared: tuple[Preparation, ModelCard]) -> None:
    preparation, _ = prepared
    gone = Work(1)
    assert gone.future.cancel()
    preparation.put(gone, [b"no picture"])
    later = Work(1)
    preparation.put(later, [pictures.jpeg()])
    assert later.future.result(PATIENCE_S).errors == {}
    assert gone.future.cancelled()
