"""train/validation/scores.py: every sample once whatever the batch; figures against those made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bulkinfer.train.data.samples import CachedSamples
from bulkinfer.train.update.step import Precision
from bulkinfer.train.validation.scores import Scores, evaluate
from torch import nn

FP32 = Precision("32.32", "cpu")


class Reads(nn.Module):
    """Logits of 7 classes that stand in the first row of the picture's first channel; keeps the sizes of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        assert not self.training
        self.sizes.append(len(images_NCHW))
        return images_NCHW[:, 0, 0, :]


def samples(count: int = 23) -> CachedSamples:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, 2, 7, 3), dtype=np.uint8)
    return CachedSamples(torch.from_numpy(images), random.integers(0, 7, count), tuple("abcdefg"))


def scores_of(batch_size: int, network: Reads) -> Scores:
    network.train()
    network.norm.eval()
    mean, std = torch.zeros(3), torch.full((3,), 1 / 255)
    found = evaluate(network, samples(), batch_size=batch_size, precision=FP32, mean=mean, std=std)
    assert (network.training, network.norm.training) == (True, False), "as before"
    return found


@pytest.mark.parametrize("batch_size", [1, 2, 5, 22, 23, 100])
def test_every_sample_once_whatever_the_batch(batch_size: int) -> None:
    network = Reads()
    found = scores_of(batch_size, network)
    assert sum(network.sizes) == 23
    assert max(network.sizes) == min(batch_size, 23)
    data = samples()
    ((_, images),) = data.batches([type("W", (), {"samples": np.arange(23)})()])  # type: ignore[list-item]
    logits = images.numpy()[:, 0, :, 0].astype(np.float64)
    ranks = [
        int((row > row[label]).sum() + (row[:label] == row[label]).sum())
        for row, label in zip(logits, data.labels, strict=True)
    ]
    assert (found.count, found.top1, found.top5) == (23, sum(r < 1 for r in ranks), sum(r < 5 for r in ranks))
    shifted = logits - logits.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(23), data.labels]
    assert found.loss == pytest.approx(losses.sum(), rel=1e-4)
    confusion = np.zeros((7, 7), int)
    for row, label in zip(logits, data.labels, strict=True):
        confusion[label, int(np.argmax(row))] += 1
    assert found.confusion.tolist() == confusion.tolist()
    row = found.as_row()
    assert (row["accuracy"], row["count"]) == (found.top1 / 23, 23)
    assert f"({found.top1} of 23)" in found.sentence()


def test_equal_scores_go_to_the_class_that_comes_first() -> None:
    found = Scores(3)
    found.add(torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [5.0, 5.0, 5.0]]), torch.tensor([0, 2, 1]))
    assert (found.top1, found.top5) == (1, 3), "fewer than five classes: all of them count"
    assert found.confusion.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
