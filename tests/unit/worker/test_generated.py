"""generated.py: random pictures for the loader threads."""

from __future__ import annotations

import numpy as np
import pytest
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Step
from bulkinfer.worker import generated
from bulkinfer.worker.generated import Generator, generated_records
from bulkinfer.worker.metrics import Meter

RECIPE = Recipe(24, 32, "short_side", 256, 0.875, "bicubic", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def test_records_are_numbered_as_in_their_step() -> None:
    assert [record.number for record in generated_records(Step(3, 5, 9))] == [5, 6, 7, 8]
    assert len({record.key for record in generated_records(Step(0, 0, 100))}) == 100


def test_pictures_differ_fill_their_slot_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    slots = np.zeros((66, 24, 32, 3), np.uint8)
    monkeypatch.setattr(generated, "_POOL_BYTES", 64 * 24 * 32 * 3)
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
