"""synthetic.py: random pictures for the loader threads, input without loading, and batches that no network computes."""

from __future__ import annotations

import numpy as np
import pytest
from bulkinfer.model.recipe import Recipe
from bulkinfer.runtime.session import describe_proof, warm_up
from bulkinfer.types import Step
from bulkinfer.worker import synthetic
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.synthetic import Generator, NoNetwork, SyntheticLoader, generated_records, random_input

RECIPE = Recipe(24, 32, "short_side", 256, 0.875, "bicubic", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def test_records_are_numbered_as_in_their_step() -> None:
    assert [record.number for record in generated_records(Step(3, 5, 9))] == [5, 6, 7, 8]
    assert len({record.key for record in generated_records(Step(0, 0, 100))}) == 100


def test_pictures_differ_fill_their_slot_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    slots = np.zeros((66, 24, 32, 3), np.uint8)
    monkeypatch.setattr(synthetic, "_POOL_BYTES", 64 * 24 * 32 * 3)
    generator, again = Generator(RECIPE, meter), Generator(RECIPE, meter)
    for record in generated_records(Step(0, 0, 66)):
        facts = generator.load(record, slots[record.number])
    assert (facts.format, facts.width, facts.height) == ("generated", 32, 24)
    assert len({slot.tobytes() for slot in slots[:64]}) == 64
    assert (slots[64:] == slots[:2]).all()
    assert slots.min() == 0
    assert slots.max() == 255
    assert abs(float(slots.mean()) - 127.5) < 1
    (record,) = generated_records(Step(0, 1, 2))
    out = np.zeros((24, 32, 3), np.uint8)
    again.load(record, out)
    assert (out == slots[1]).all()
    assert meter.snapshot().seconds["preprocess"] > 0


def test_synthetic_batches_are_the_same_memory() -> None:
    images = np.ones((4, 2, 2, 3), np.uint8)
    loader = SyntheticLoader([Step(0, 0, 8), Step(0, 8, 13)], new_rows=lambda step: step, batch=images)
    seen = []
    while (batch := loader.next_ready()) is not None:
        assert batch.images_NHWC is images
        loader.recycle(batch)
        seen.append((batch.rows, batch.offset, batch.count))
    assert seen == [(Step(0, 0, 8), 0, 4), (Step(0, 0, 8), 4, 4), (Step(0, 8, 13), 0, 4), (Step(0, 8, 13), 4, 1)]
    assert loader.next_ready() is None


def test_synthetic_stop() -> None:
    loader = SyntheticLoader([Step(0, 0, 800)], new_rows=lambda step: step, batch=np.ones((4, 2, 2, 3), np.uint8))
    assert loader.next_ready() is not None
    loader.stop()
    assert loader.next_ready() is None


@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("float32", -1, 1), ("float16", -1, 1)])
def test_random_input_needs_no_conversion(dtype: str, low: float, high: float) -> None:
    images = random_input((3, 20, 20, 3), np.dtype(dtype))
    assert (images.shape, images.dtype) == ((3, 20, 20, 3), dtype)
    assert (images.min(), images.max()) == (low, high)
    assert len(np.unique(images)) > 10


def test_it_takes_batches_of_its_shape_and_gives_no_numbers() -> None:
    network = NoNetwork((4, 8, 6, 3))
    images = np.zeros((4, 8, 6, 3), np.uint8)
    assert network.pin(images) is images
    (output,) = network.run(images).values()
    assert output.shape == (4, 0)
    with pytest.raises(AssertionError, match="not the fixed shape"):
        network.run(images[:1])


def test_a_worker_can_warm_it_up_and_describe_it() -> None:
    network = NoNetwork((4, 8, 6, 3))
    assert warm_up(network, 2, 0.0) > 0
    assert "no network" in describe_proof(network.proof)
