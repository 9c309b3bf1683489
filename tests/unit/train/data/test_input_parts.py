"""input_parts.py: what of a training's input can be run alone, and that it is the input of the training."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer.train.data import input_parts
from bulkinfer.train.data.input_parts import BATCH, DECODE, READ, TOGETHER, parts_of
from bulkinfer.train.training import Training
from torch import Tensor

from tests.training import write_digits
from tests.training_inputs import class_folders, of_folder, training_of


def test_files_are_read_and_decoded_and_what_is_in_memory_is_not(tmp_path: Path) -> None:
    found = {
        "folder": parts_of(training_of(of_folder(class_folders(tmp_path / "data")))),
        "digits": parts_of(training_of(of_folder(write_digits(tmp_path / "digits"), dataset="digits"))),
        "uncached": parts_of(training_of(of_folder(tmp_path / "digits", dataset="digits", cache_mb=0))),
        "generated": parts_of(training_of(of_folder(tmp_path, dataset="generated"))),
    }
    assert {name: list(parts) for name, parts in found.items()} == {
        "folder": [READ, DECODE, BATCH, TOGETHER],
        "digits": [BATCH, TOGETHER],
        "uncached": [DECODE, BATCH, TOGETHER],
        "generated": [BATCH, TOGETHER],
    }
    for parts in found.values():
        for begin in parts.values():
            assert list(islice(begin(), 7)) == [4] * 7, "also beyond the end of an epoch"


def test_pictures_and_order_are_those_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of(of_folder(class_folders(tmp_path / "data"), augment="resized_crop"))
    parts, seen = parts_of(training), dict[str, list[Tensor]]()
    expected = [images for _, images in islice(training.data.samples.batches(input_parts.plan_work(training)), 6)]

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(training: Training, work: Any, images: Tensor) -> Any:
            seen.setdefault(name, []).append(images.clone())
            return function(training, work, images)

        return called

    monkeypatch.setattr(input_parts, "make_input", noting(TOGETHER, input_parts.make_input))
    list(islice(parts[TOGETHER](), 6))
    assert all(torch.equal(one, other) for one, other in zip(seen[TOGETHER], expected, strict=True))
    samples = training.data.samples
    monkeypatch.setattr(input_parts, "_ready", lambda samples, work: (images for _, images in samples.batches(work)))
    decoded: Any = islice(parts[DECODE](), 6)
    assert all(torch.equal(one, other) for one, other in zip(decoded, expected, strict=True))
    assert training.data.samples is samples
