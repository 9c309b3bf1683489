"""Accuracy of a network on a data set: every sample counts exactly once, for any batch size.

Shape letters: N batch, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bulkinfer.errors import RunError
from bulkinfer.train.data.augment import normalise
from bulkinfer.train.data.samples import Samples, Work
from bulkinfer.train.ranks.group import ALONE, Ranks
from bulkinfer.train.update.step import Precision


@dataclass
class Scores:
    """Sums over the samples seen; `confusion` is K x K: rows are labels, columns are answers."""

    num_classes: int
    count: int = 0
    top1: int = 0
    top5: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    confusion: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.confusion = np.zeros((self.num_classes, self.num_classes), np.int64)

    def add(self, logits_NK: Tensor, labels_N: Tensor) -> None:
        """Count a batch. Of equal scores the first class wins, as in infer_launch."""
        logits_NK = logits_NK.double()
        best_N5 = torch.sort(logits_NK, dim=1, descending=True, stable=True).indices[:, :5]
        hits_N5 = best_N5 == labels_N[:, None]
        self.count += len(labels_N)
        self.top1 += int(hits_N5[:, 0].sum())
        self.top5 += int(hits_N5.sum())
        self.loss += float(functional.cross_entropy(logits_NK, labels_N, reduction="sum"))
        np.add.at(self.confusion, (labels_N.cpu().numpy(), best_N5[:, 0].cpu().numpy()), 1)

    def merge(self, ranks: Ranks) -> None:
        """Add what the other ranks have counted."""
        counts = torch.tensor([self.count, self.top1, self.top5])
        loss, confusion = torch.tensor([self.loss], dtype=torch.float64), torch.from_numpy(self.confusion)
        ranks.add([counts, confusion])
        ranks.add([loss])
        self.count, self.top1, self.top5 = counts.tolist()
        self.loss = loss.item()

    @property
    def accuracy(self) -> float:
        return self.top1 / self.count

    @property
    def images_per_s(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0

    def as_row(self) -> dict[str, int | float]:
        """The row of validation.csv."""
        return {"accuracy": self.accuracy, "top5": self.top5 / self.count, "loss": self.loss / self.count, "count": self.count,
                "images_per_sec": self.images_per_s, "seconds": self.seconds}  # fmt: skip

    def sentence(self) -> str:
        """One line for the screen."""
        return (
            f"top-1 {100 * self.accuracy:.2f} % ({self.top1} of {self.count}), top-5 {100 * self.top5 / self.count:.2f} %, "
            f"loss {self.loss / self.count:.4f}, {self.images_per_s:.1f} images/sec"
        )


def evaluate(
    network: nn.Module,
    samples: Samples,
    *,
    batch_size: int,
    precision: Precision,
    mean: Tensor,
    std: Tensor,
    ranks: Ranks = ALONE,
) -> Scores:
    """Run every sample once, in evaluation mode; the mode of each module is restored afterwards.

    Batches are taken in order, by the ranks in turns; all ranks return the scores of all samples.
    """
    scores = Scores(len(samples.class_names))
    labels = torch.from_numpy(samples.labels)
    ranks.take_from_first(list(network.buffers()))  # each rank has averages of batch norm over its own pictures
    in_training = [module for module in network.modules() if module.training]
    network.eval()
    start = time.perf_counter()
    try:
        with torch.inference_mode():
            for work, images_NHWC in samples.batches(_sequential_work(len(labels), batch_size, ranks)):
                images_NCHW = normalise(images_NHWC.to(mean.device), mean, std, precision.input)
                with precision.autocast():
                    logits_NK = network(images_NCHW)
                scores.add(logits_NK, labels[work.samples].to(logits_NK.device))
    finally:
        for module in in_training:
            module.training = True
    scores.merge(ranks)
    if not scores.count:
        raise RunError("none of the validation pictures can be used")
    scores.seconds = time.perf_counter() - start
    return scores


def _sequential_work(count: int, batch_size: int, ranks: Ranks) -> Iterator[Work]:
    world = ranks.world
    for start in range(world.rank * batch_size, count, world.size * batch_size):
        yield Work(0, None, np.arange(start, min(start + batch_size, count)))
