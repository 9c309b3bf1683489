"""optimisers.py: rules against formulas, decay and L2 told apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.options import OPTIMISERS
from bulkinfer.train.update.optimisers import OptimiserOptions, make_optimiser, plain_for_lars, update
from torch import nn

GRADIENTS = (1.0, -0.5, 0.25)


def moved(name: str, **options: float) -> float:
    """A weight of 1 after three updates at rate 0.1 with the gradients above."""
    weight = nn.Parameter(torch.ones(1, 1, dtype=torch.float64))
    optimiser = make_optimiser([weight], OptimiserOptions(name, **options))
    for gradient in GRADIENTS:
        weight.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        update(optimiser, 0.1)
    return float(weight.detach())


def by_hand(name: str, *, momentum: float = 0.9, l2: float = 0.0, shrink: float = 0.0) -> float:
    """The same, by the formulas."""
    weight, velocity, mean, square = 1.0, 0.0, 0.0, 0.0
    for step, gradient in enumerate(GRADIENTS, 1):
        weight *= 1 - 0.1 * shrink
        gradient += l2 * weight
        if name in ("momentum", "nesterov"):
            velocity = gradient if step == 1 else momentum * velocity + gradient
            weight -= 0.1 * (gradient + momentum * velocity if name == "nesterov" else velocity)
        elif name in ("adam", "adamw"):
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            weight -= 0.1 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        elif name == "rmsprop":
            square = 0.9 * square + 0.1 * gradient**2
            velocity = momentum * velocity + gradient / (np.sqrt(square) + 1e-8)
            weight -= 0.1 * velocity
        elif name == "rmsprop_tf":
            square = (1.0 if step == 1 else square) * 0.9 + 0.1 * gradient**2
            velocity = momentum * velocity + 0.1 * gradient / np.sqrt(square + 1e-3)
            weight -= velocity
        else:
            weight -= 0.1 * gradient
    return weight


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "rmsprop_tf"])
@pytest.mark.parametrize("options", [{}, {"l2": 0.1}, {"weight_decay": 0.2}])
def test_rules(name: str, options: dict[str, float]) -> None:
    expected = by_hand(name, l2=options.get("l2", 0.0), shrink=options.get("weight_decay", 0.0))
    assert moved(name, **options) == pytest.approx(expected, abs=1e-9)


def test_lars_moves_by_the_ratio_of_norms() -> None:
    weight = nn.Parameter(torch.full((2, 2), 3.0))
    optimiser = make_optimiser([weight], OptimiserOptions("lars", momentum=0.0))
    weight.grad = torch.full((2, 2), 5.0)
    update(optimiser, 1.0)
    assert weight.detach().numpy() == pytest.approx(np.full((2, 2), 3 - 0.001 * 3 / 5 * 5), rel=1e-5)


@pytest.mark.parametrize(
    ("skip", "plain"),
    [
        ((), {"0.bias", "1.weight", "1.bias"}),
        (("beta", "gamma", "bias"), {"0.bias", "1.weight", "1.bias"}),
        (("beta",), {"1.bias"}),
        (("gamma",), {"1.weight"}),
        (("0.",), {"0.weight", "0.bias"}),
    ],
)
def test_parameters_that_lars_neither_scales_nor_decays(skip: tuple[str, ...], plain: set[str]) -> None:
    parameters = dict(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).named_parameters())
    optimiser = make_optimiser(parameters.values(), OptimiserOptions("lars", l2=0.5), plain_for_lars(parameters, skip))
    names = {id(parameter): name for name, parameter in parameters.items()}
    scaled, left = optimiser.param_groups
    assert {names[id(parameter)] for parameter in left["params"]} == plain
    assert {names[id(parameter)] for parameter in scaled["params"]} == set(parameters) - plain
    assert (scaled["always_adapt"], scaled["weight_decay"], left["always_adapt"], left["weight_decay"]) == (
        True,
        0.5,
        False,
        0.0,
    )


def test_a_part_of_no_name_is_refused() -> None:
    with pytest.raises(UsageError, match="--lars_skip fc: no parameter has this in its name"):
        plain_for_lars({"0.weight": nn.Parameter(torch.ones(1, 1))}, ("fc",))


@pytest.mark.parametrize("option", ["l2", "weight_decay"])
def test_parameters_of_one_dimension_are_not_decayed(option: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimiser = make_optimiser(model.parameters(), OptimiserOptions("sgd", **{option: 0.5}))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    update(optimiser, 0.1)
    for name, value in model.named_parameters():
        assert torch.allclose(value, before[name] * (0.95 if value.ndim > 1 else 1.0)), name


def test_the_names_offered_are_those_that_are_built() -> None:
    assert set(OPTIMISERS) == set(OPTIMISERS)
