"""The update of the weights: gradients are summed in float32, and weights of 16 bits are updated in float32, then rounded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from bulkinfer.train.options import TrainConfig
from bulkinfer.train.update.optimisers import OptimiserOptions, make_optimiser, plain_for_lars, update
from bulkinfer.train.update.rounding import RandomRounding

_HALVES = (torch.bfloat16, torch.float16)


class Updater:
    """An optimiser and the parameters that it updates.

    A parameter of 16 bits has a float32 copy. Its gradients are summed in that of the copy, where small ones count too, and
    the optimiser works on the copy and keeps its averages in float32. The copy has memory during an update only: between two
    updates the weights are those of 16 bits. With a `rounding_seed` the result is rounded stochastically, without one to the
    nearest. If it `is_sharded`, each rank keeps the state of the optimiser for a part of the parameters. With `own` names, this
    rank has the weights of these parameters only, and updates no others; numbers of parameters are those of all.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        options: OptimiserOptions,
        rounding_seed: int | None = None,
        *,
        is_sharded: bool = False,
        own: Collection[str] | None = None,
    ) -> None:
        own = parameters.keys() if own is None else own
        copies = {name: _copy(weight) for name, weight in parameters.items() if weight.dtype in _HALVES}
        halves = {name: parameters[name] for name in copies if name in own}
        self._weights, self._copies = list(halves.values()), [copies[name] for name in halves]
        for weight, copy in zip(self._weights, self._copies, strict=True):
            weight.register_post_accumulate_grad_hook(partial(_move_gradient, copy))  # type: ignore[no-untyped-call]
        targets = {**parameters, **copies}
        self._targets = [target for name, target in targets.items() if name in own]
        self._rounding = RandomRounding(rounding_seed, list(halves)) if halves and rounding_seed is not None else None
        self.optimiser = make_optimiser(
            targets.values(), options, plain_for_lars(targets, options.lars_skip), is_sharded=is_sharded
        )

    def forget_gradients(self) -> None:
        """Begin a new sum."""
        self.optimiser.zero_grad(set_to_none=True)

    def forget_others(self) -> None:
        """Drop the state of parameters that this rank does not update, after the state of all was loaded."""
        own = {id(target) for target in self._targets}
        for target in [target for target in self.optimiser.state if id(target) not in own]:
            del self.optimiser.state[target]

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


def _move_gradient(copy: nn.Parameter, weight: Tensor) -> None:
    """Add the gradient of a backward pass to the sum in the float32 copy of a parameter of 16 bits."""
    assert weight.grad is not None
    copy.grad = weight.grad.float() if copy.grad is None else copy.grad.add_(weight.grad)
    weight.grad = None


def rounding_seed(config: TrainConfig) -> int | None:
    """The seed of stochastic rounding, or None where the weights are not rounded, or to the nearest."""
    return config.seed if config.precision == "16.16" and config.stochastic_rounding != "off" else None


def _copy(weight: nn.Parameter) -> nn.Parameter:
    """A float32 parameter of the same shape and strides, without memory."""
    copy = nn.Parameter(torch.empty_like(weight, dtype=torch.float32))
    copy.untyped_storage().resize_(0)
    return copy
