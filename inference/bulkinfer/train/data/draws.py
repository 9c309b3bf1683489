"""Random numbers as functions of seed, epoch and sample: for any number of replicas and threads, and after a resume."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64, as are the constants of _mix


class Draw(IntEnum):
    """What a number decides; each has its own sequence. Add new ones at the end, or runs can no longer be reproduced."""

    FLIP = 1
    CROP_Y = 2
    CROP_X = 3
    AREA = 4
    ASPECT = 5
    MIX_KIND = 6
    MIX_SHARE = 7
    MIX_Y = 8
    MIX_X = 9
    MADE_UP = 10
    ROUNDING = 11


def uniform(seed: int, epoch: int, samples: Integers, draw: Draw, attempt: int = 0) -> Floats:
    """One number in [0, 1) for each sample index, by chained splitmix64 (Steele, Lea and Flood, OOPSLA 2014).

    Each `attempt` has its own numbers.
    """
    state = _mix(np.array([seed], np.uint64))
    for value in (epoch, int(draw), attempt)[: 3 if attempt else 2]:
        state = _mix(state ^ np.uint64(value))
    return (_mix(state ^ samples.astype(np.uint64)) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def order(seed: int, epoch: int, num_samples: int, *, shuffle: bool = True) -> Integers:
    """The sample indices of an epoch, in the order in which the replicas together take them."""
    if not shuffle:
        return np.arange(num_samples)
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(num_samples)


def spread(num_samples: int, total: int) -> Integers:
    """`num_samples` of `total` sample indices at equal distances: a share of every class if samples are sorted by class."""
    return np.arange(num_samples, dtype=np.int64) * total // num_samples


def step_seed(seed: int, step: int, rank: int) -> int:
    """Torch's seed for one update on one rank (dropout, dropped blocks), so that checkpoints need no random state."""
    state = _mix(np.array([seed], np.uint64))
    for value in (step, rank):
        state = _mix(state ^ np.uint64(value))
    return int(state[0] >> np.uint64(1))


def rounding_seeds(seed: int, step: int, names: Sequence[int]) -> list[int]:
    """Torch's seeds for the rounding of parameters in one update; `names` has a number of 64 bits for the name of each."""
    state = _mix(np.array([seed], np.uint64))
    for value in (step, int(Draw.ROUNDING)):
        state = _mix(state ^ np.uint64(value))
    return [int(number) for number in _mix(state ^ np.array(names, np.uint64)) >> np.uint64(1)]


def _mix(values: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        mixed = values + _GAMMA
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
