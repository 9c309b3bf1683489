"""Stochastic rounding of float32 to 16 bits: up or down, with probabilities for which the mean is the value itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bulkinfer.train.data.draws import rounding_seeds

_CUT = {torch.bfloat16: 16, torch.float16: 13}  # lower bits of a float32 that the type does not have
_SUBNORMAL = 2.0**-14  # below it float16 has steps of 2^-24, whatever the exponent


def round_stochastically(values: Tensor, rounded: Tensor, random: torch.Generator) -> None:
    """Round float32 `values` into `rounded`, in bfloat16 or float16; `values` are overwritten.

    A whole number, uniform over all that the lower bits can hold, is added to the bits of the value, and the lower bits are
    cut. So the neighbour away from zero comes out with a probability that is the share of the way to it (Gupta et al.,
    arXiv:1502.02551). What 16 bits can hold, infinity included, stays as it is.
    """
    cut = _CUT[rounded.dtype]
    shift = _shift_of_subnormals(values) if rounded.dtype == torch.float16 else None
    if shift is not None:
        values.add_(shift)
    values.view(torch.int32).add_(_draws(values, cut, random)).bitwise_and_(-1 << cut)
    if shift is not None:
        values.sub_(shift)
    rounded.copy_(values)


def _draws(values: Tensor, num_bits: int, random: torch.Generator) -> Tensor:
    """A whole number of so many bits, at most 16, for each value; four of them come from one draw of 64 bits, for speed."""
    words = torch.empty(math.ceil(values.numel() / 4), dtype=torch.int64, device=values.device)
    words.random_(-(2**63), None, generator=random)
    draws = words.view(torch.int16)[: values.numel()].to(torch.int32).bitwise_and_((1 << num_bits) - 1)
    return draws.as_strided(values.shape, values.stride())


def _shift_of_subnormals(values: Tensor) -> Tensor:
    """What moves values that are subnormal in float16 to where float32 has 13 bits more than steps of 2^-24; 0 for others."""
    return torch.where(values.abs() < _SUBNORMAL, torch.full_like(values, _SUBNORMAL).copysign_(values), 0.0)


class RandomRounding:
    """Rounds the weights of a run. Draws are functions of seed, update and parameter: equal on all ranks and after a resume."""

    def __init__(self, seed: int, names: Sequence[str]) -> None:
        self._seed = seed
        self._names = [int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") for name in names]

    def __call__(self, step: int, values: Sequence[Tensor], rounded: Sequence[Tensor]) -> None:
        """Round the parameters, in the order of their names, after update number `step`; `values` are overwritten."""
        seeds = rounding_seeds(self._seed, step, self._names)
        random = torch.Generator(values[0].device)
        for seed, each, target in zip(seeds, values, rounded, strict=True):
            round_stochastically(each, target, random.manual_seed(seed))
