"""One update: forward and backward passes over micro batches, the mean gradient of the window, the weights moved.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bulkinfer.train.optimisers import update
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.replicas import add_over_replicas


@dataclass(frozen=True, slots=True)
class Precision:
    """Arithmetic and weights: 32.32 all float32; 16.32 autocast over float32 weights; 16.16 weights in 16 bits as well.

    `half_type` is the type of 16 bits: bfloat16, or float16, whose small range asks for a loss scale.
    """

    name: str
    device: str
    half_type: str = "bfloat16"

    @property
    def half(self) -> torch.dtype:
        return torch.float16 if self.half_type == "float16" else torch.bfloat16

    @property
    def weights(self) -> torch.dtype:
        return self.half if self.name == "16.16" else torch.float32

    @property
    def input(self) -> torch.dtype:
        """The type of the pictures that the network gets."""
        return self.weights

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.name != "16.32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=self.half)


@dataclass
class LossScale:
    """What the loss is multiplied with before the backward pass, and the gradients divided by after it.

    `static`: `value` for ever. `ramp`: doubles from 1 to `value` over the run, in equal parts. `dynamic`: halved when a
    gradient is not finite, doubled after 2,000 updates in which all were (the rule of Micikevicius et al., arXiv:1710.03740).
    """

    kind: str
    value: float
    good_steps: int = 0

    def at(self, progress: float) -> float:
        """The scale when `progress` (0..1) of the run is done."""
        if self.kind != "ramp":
            return self.value
        doublings = max(0, math.floor(math.log2(self.value)))
        return float(2 ** min(doublings, int(progress * (doublings + 1))))

    def after(self, finite: bool) -> None:
        """Learn from an update."""
        if self.kind != "dynamic":
            return
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.value = max(self.value / 2, 2.0**-24)
        elif self.good_steps == 2000:
            self.value, self.good_steps = min(self.value * 2, 2.0**24), 0


def loss_scale_of(config: TrainConfig) -> LossScale:
    """--loss_scaling in its mode; a dynamic scale begins high, since it falls at once and rises slowly."""
    first = 2.0**16 if config.loss_scaling_mode == "dynamic" else 1.0
    return LossScale(config.loss_scaling_mode, config.loss_scaling or first)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an update gave: sums over this replica's samples, on the device. `finite` is whether the weights moved."""

    loss: Tensor
    correct: Tensor
    count: int
    finite: bool


def targets_of(labels_N: Tensor, num_classes: int, smoothing: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Labels as probabilities, N x K: 1 - smoothing for the label, the rest spread over all classes (torch's meaning)."""
    targets = torch.full((len(labels_N), num_classes), smoothing / num_classes, dtype=dtype, device=labels_N.device)
    return targets.scatter_(1, labels_N[:, None], 1 - smoothing + smoothing / num_classes)


def run_step(
    network: Callable[[Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    parts: Iterable[tuple[Tensor, Tensor, Tensor]],
    *,
    window_size: int,
    rate: float,
    scale: float,
    precision: Precision,
    replicas: int = 1,
    buffers: Sequence[Tensor] = (),
) -> Outcome:
    """One update from the micro batches `parts`: pictures N x C x H x W, targets N x K, labels N.

    The gradient is that of the mean loss over all `window_size` samples of all replicas, however they are cut. Where any
    gradient is not finite, on any replica, the weights stay as they are, and so do the `buffers`: averages of batch norm.
    """
    before = [buffer.clone() for buffer in buffers]
    optimiser.zero_grad(set_to_none=True)
    losses, correct, count = [], [], 0
    for images_NCHW, targets_NK, labels_N in parts:
        with precision.autocast():
            logits_NK = network(images_NCHW)
        loss = functional.cross_entropy(logits_NK.float(), targets_NK, reduction="sum")
        (loss * (scale / window_size)).backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
        correct.append((logits_NK.detach().argmax(1) == labels_N).sum())
        count += len(labels_N)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    if replicas > 1:
        for parameter in parameters:
            if parameter.grad is None:  # nothing was left for this replica, but the others have a gradient
                parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if replicas > 1:
        add_over_replicas(gradients)
    if scale != 1:
        torch._foreach_mul_(gradients, 1 / scale)
    finite = bool(torch.isfinite(torch.stack(torch._foreach_norm(gradients)).sum()))
    if finite:
        update(optimiser, rate)
    else:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
    nothing = [torch.zeros((), device=gradients[0].device)]
    return Outcome(torch.stack(losses or nothing).sum(), torch.stack(correct or nothing).sum(), count, finite)
