"""The update of the weights: gradients are summed in float32, and weights of 16 bits are updated in float32, then rounded."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bulkinfer.train.optimisers import OptimiserOptions, make_optimiser, plain_for_lars, update
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.rounding import RandomRounding

_HALVES = (torch.bfloat16, torch.float16)


class Updater:
    """An optimiser and the parameters that it updates.

    A parameter of 16 bits has a float32 copy. Its gradients are summed in that of the copy, where small ones count too, and
    the optimiser works on the copy and keeps its averages in float32. The copy has memory during an update only: between two
    updates the weights are those of 16 bits. With a `rounding_seed` the result is rounded stochastically, without one to the
    nearest. If it `is_sharded`, each rank keeps the state of the optimiser for a part of the parameters.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        options: OptimiserOptions,
        rounding_seed: int | None = None,
        *,
        is_sharded: bool = False,
    ) -> None:
        halves = {name: weight for name, weight in parameters.items() if weight.dtype in _HALVES}
        copies = {name: _copy(weight) for name, weight in halves.items()}
        self._weights, self._copies = list(halves.values()), list(copies.values())
        targets = {**parameters, **copies}
        self._targets = list(targets.values())
        self._rounding = RandomRounding(rounding_seed, list(halves)) if halves and rounding_seed is not None else None
        self.optimiser = make_optimiser(
            self._targets, options, plain_for_lars(targets, options.lars_skip), is_sharded=is_sharded
        )

    def forget_gradients(self) -> None:
        """Begin a new sum."""
        self.optimiser.zero_grad(set_to_none=True)
        for weight in self._weights:
            weight.grad = None

    def add_gradients(self) -> None:
        """Add the gradients of a backward pass to the sums; those of float32 parameters were added by the pass itself."""
        for weight, copy in zip(self._weights, self._copies, strict=True):
            if weight.grad is not None:
                copy.grad = weight.grad.float() if copy.grad is None else copy.grad.add_(weight.grad)
                weight.grad = None

    def gradients(self, *, of_all: bool = False) -> list[Tensor]:
        """The sums, of which some may be missing; with `of_all` zeros stand for these."""
        if of_all:
            for target in self._targets:
                target.grad = torch.zeros_like(target) if target.grad is None else target.grad
        return [target.grad for target in self._targets if target.grad is not None]

    @torch.no_grad()
    def update(self, rate: float, step: int) -> None:
        """Update number `step` of the weights, from the sums of the gradients."""
        for weight, copy in zip(self._weights, self._copies, strict=True):
            copy.untyped_storage().resize_(copy.nbytes)
            copy.copy_(weight)
        update(self.optimiser, rate)
        if self._rounding is not None:
            self._rounding(step, self._copies, self._weights)
        for weight, copy in zip(self._weights, self._copies, strict=True):
            if self._rounding is None:
                weight.copy_(copy)
            copy.untyped_storage().resize_(0)


def rounding_seed(config: TrainConfig) -> int | None:
    """The seed of stochastic rounding, or None where the weights are not rounded, or to the nearest."""
    return config.seed if config.precision == "16.16" and config.stochastic_rounding != "off" else None


def _copy(weight: nn.Parameter) -> nn.Parameter:
    """A float32 parameter of the same shape and strides, without memory."""
    copy = nn.Parameter(torch.empty_like(weight, dtype=torch.float32))
    copy.untyped_storage().resize_(0)
    return copy
