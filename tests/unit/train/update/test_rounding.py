"""rounding.py: unbiased, to one of the two neighbours, and a function of seed, update and parameter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bulkinfer.train.update.rounding import RandomRounding, round_stochastically

TYPES = {"bfloat16": (8, -133), "float16": (11, -24)}  # significant bits, and the exponent of the smallest step
REPEATS = 10_000


def values_of(name: str) -> np.ndarray:
    """A hundred float32: of all sizes that the type has, the smallest and those below its normal range included."""
    random = np.random.default_rng(0)
    bits, smallest = TYPES[name]
    largest = 15 if name == "float16" else 100
    exponents = np.concatenate([random.uniform(smallest - 1, largest, 80), random.uniform(smallest, smallest + bits, 20)])
    return (np.exp2(exponents) * random.choice([-1, 1], 100)).astype(np.float32)


@pytest.mark.parametrize("name", TYPES)
def test_the_mean_is_the_value_and_only_its_neighbours_come_out(name: str) -> None:
    """Neighbours and probabilities in float64, from the exponent: the mean of so many is within four standard errors."""
    bits, smallest = TYPES[name]
    random, dtype = torch.Generator().manual_seed(0), getattr(torch, name)
    values = values_of(name)
    rounded = torch.empty(REPEATS, len(values), dtype=dtype)
    round_stochastically(torch.from_numpy(values).expand_as(rounded).clone(), rounded, random)
    sizes, found = np.abs(values.astype(np.float64)), np.abs(rounded.double().numpy())
    steps = np.exp2(np.maximum(np.frexp(sizes)[1] - bits, smallest))
    below = np.floor(sizes / steps) * steps
    assert ((found == below) | (found == below + steps)).all()
    share = (sizes - below) / steps
    error = steps * np.sqrt(share * (1 - share) / REPEATS)
    assert (np.abs(found.mean(0) - sizes) <= 4 * error).all()
    assert (np.sign(rounded.double().numpy()) * np.sign(values) >= 0).all(), "the sign stays"


@pytest.mark.parametrize("name", TYPES)
def test_what_sixteen_bits_can_hold_stays(name: str) -> None:
    dtype = getattr(torch, name)
    smallest = 2.0 ** TYPES[name][1]
    exact = torch.tensor(
        [0.0, 1.0, -1.0, 1.5, smallest, -3 * smallest, 2.0**-14, torch.finfo(dtype).max, torch.inf, -torch.inf]
    )
    exact = exact.repeat(100)
    rounded = torch.empty_like(exact, dtype=dtype)
    round_stochastically(exact.clone(), rounded, torch.Generator().manual_seed(0))
    assert torch.equal(rounded.float(), exact)
    round_stochastically(torch.full_like(exact, torch.nan), rounded, torch.Generator())
    assert rounded.isnan().all()


def rounded_at(seed: int, step: int, names: list[str]) -> dict[str, torch.Tensor]:
    values = [torch.linspace(1, 2, 2001).reshape(3, 667).t() for _ in names]
    rounded = [torch.empty_like(value, dtype=torch.bfloat16) for value in values]
    RandomRounding(seed, names)(step, values, rounded)
    return dict(zip(names, rounded, strict=True))


def test_draws_are_functions_of_seed_update_and_parameter() -> None:
    """Whatever other parameters there are, as on a rank that has a part of the network."""
    first = rounded_at(3, 7, ["a.weight", "b.weight"])
    assert torch.equal(rounded_at(3, 7, ["b.weight"])["b.weight"], first["b.weight"])
    others = [first["b.weight"], *(rounded_at(*which, ["a.weight"])["a.weight"] for which in ((4, 7), (3, 8), (7, 3)))]
    for other in others:
        assert 0.2 < (other != first["a.weight"]).double().mean() < 0.5, "about a third of these values, by chance"
