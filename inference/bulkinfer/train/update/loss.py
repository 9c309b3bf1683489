"""The loss of the micro batches of an update, and what is summed up of them.

Shape letters: N batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

Part = tuple[Tensor, Tensor, Tensor]  # a micro batch: pictures N x C x H x W, targets N x K, labels N


class Loss:
    """The cross entropy of micro batches, summed over their pictures, times a factor; loss and right answers add up."""

    def __init__(self, factor: float, *, counts_correct: bool = True) -> None:
        self._factor, self._counts_correct = factor, counts_correct
        self._losses, self._correct, self.count = list[Tensor](), list[Tensor](), 0

    def __call__(self, logits_NK: Tensor, answers: Sequence[Tensor]) -> Tensor:
        """The value for the backward pass. `answers` are targets N x K, and labels N."""
        targets_NK, labels_N = answers
        loss = functional.cross_entropy(logits_NK.float(), targets_NK, reduction="sum")
        self._losses.append(loss.detach())
        if self._counts_correct:
            self._correct.append((logits_NK.detach().argmax(1) == labels_N).sum())
        self.count += len(labels_N)
        return loss * self._factor

    def sums(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Loss, and right answers, of all micro batches so far."""
        nothing = [torch.zeros((), device=device)]
        return torch.stack(self._losses or nothing).sum(), torch.stack(self._correct or nothing).sum()
