"""Optimisers by name, and which parameters they decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bulkinfer.errors import UsageError
from bulkinfer.train.options import DEFAULT_L2, TrainConfig

USES_MOMENTUM = ("momentum", "nesterov", "rmsprop", "rmsprop_tf", "lars")

_NORM_PARTS = {"beta": "bias", "gamma": "weight"}  # TensorFlow's names of a norm's parameters -> ours


@dataclass(frozen=True, slots=True)
class OptimiserOptions:
    """Name and settings of an optimiser.

    `l2` x weights is added to the gradient. `weight_decay` shrinks the weights by rate x weight_decay at each update, with any
    optimiser (Loshchilov and Hutter, arXiv:1711.05101). Both leave out parameters of one dimension. `epsilon` 0 stands for the
    optimiser's own. `lars_skip` are parts of the names of parameters: see plain_for_lars().
    """

    name: str
    momentum: float = 0.9
    weight_decay: float = 0.0
    l2: float = 0.0
    epsilon: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    rmsprop_decay: float = 0.9
    trust: float = 0.001
    lars_skip: tuple[str, ...] = ()


def optimiser_options(config: TrainConfig) -> OptimiserOptions:
    """The options of the optimiser."""
    return OptimiserOptions(
        name=config.optimizer,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        l2=l2_of(config),
        epsilon=config.optimizer_eps,
        rmsprop_decay=config.rmsprop_decay,
        trust=config.lars_trust,
        lars_skip=config.lars_skip,
    )


def l2_of(config: TrainConfig) -> float:
    """--l2, or its default: 0.0005, or 0 beside --weight_decay."""
    return config.l2 if config.l2 >= 0 else 0.0 if config.weight_decay else DEFAULT_L2


def has_one_dimension(parameter: nn.Parameter) -> bool:
    """Whether a parameter is one of those that have no decay: a weight of a norm, or a bias."""
    return parameter.ndim <= 1


def plain_for_lars(parameters: Mapping[str, nn.Parameter], skip: Sequence[str]) -> Callable[[nn.Parameter], bool]:
    """Whether lars leaves a parameter as plain momentum would have it, without decay: --lars_skip, or those of one dimension.

    Each of `skip` is a part of a name; beta is the bias of a norm and gamma its weight. Raises UsageError for one that matches
    nothing.
    """
    if not skip:
        return has_one_dimension
    found = {word: {id(p) for name, p in parameters.items() if _is_meant(word, name, parameters)} for word in skip}
    if unused := [word for word, ids in found.items() if not ids and word not in _NORM_PARTS]:
        names = ", ".join(parameters)
        raise UsageError(f"--lars_skip {unused[0]}: no parameter has this in its name: give a part of one of {names}")
    return lambda parameter: any(id(parameter) in ids for ids in found.values())


def _is_meant(word: str, name: str, parameters: Mapping[str, nn.Parameter]) -> bool:
    module, _, own = name.rpartition(".")
    weight = parameters.get(f"{module}.weight")
    is_of_norm = weight is not None and weight.ndim == 1
    return (is_of_norm and own == _NORM_PARTS.get(word)) or word in name


def make_optimiser(
    parameters: Iterable[nn.Parameter],
    options: OptimiserOptions,
    is_plain: Callable[[nn.Parameter], bool] = has_one_dimension,
    *,
    is_sharded: bool = False,
) -> torch.optim.Optimizer:
    """The optimiser with two groups of parameters: decayed ones, and plain ones, which have no decay, nor are scaled by lars.

    The rate is 0 here, and set before each update. If it is sharded, each rank keeps and computes the state of some parameters
    only, and sends the others the new weights (Rajbhandari et al., arXiv:1910.02054, stage 1).
    """
    groups: list[dict[str, Any]] = [
        {"params": [], "l2": options.l2, "shrink": options.weight_decay, "always_adapt": True},
        {"params": [], "l2": 0.0, "shrink": 0.0, "always_adapt": False},
    ]
    for parameter in parameters:
        groups[is_plain(parameter)]["params"].append(parameter)
    groups = [{**group, "weight_decay": group["l2"]} for group in groups if group["params"]]
    kind, settings = _kind(options)
    if is_sharded:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(groups, kind, lr=0.0, **settings)
    optimiser: torch.optim.Optimizer = kind(groups, lr=0.0, **settings)
    return optimiser


def own_state(optimiser: torch.optim.Optimizer) -> Mapping[Tensor, dict[str, Any]]:
    """The state that this rank keeps: of all parameters, or of its own if the optimiser is sharded."""
    if (own := getattr(optimiser, "optim", None)) is None:
        return optimiser.state
    optimiser.state.clear()  # after a load it holds all of it a second time
    state: Mapping[Tensor, dict[str, Any]] = own.state
    return state


def gather_state(optimiser: torch.optim.Optimizer) -> None:
    """Send the state of a sharded optimiser to the first rank, whose state_dict() then is that of all ranks."""
    if (consolidate := getattr(optimiser, "consolidate_state_dict", None)) is not None:
        consolidate(to=0)


@torch.no_grad()
def update(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Update the weights once, from their gradients."""
    for group in optimiser.param_groups:
        group["lr"] = rate
        if group["shrink"]:
            updated = [parameter for parameter in group["params"] if parameter.grad is not None]  # as optimisers choose them
            torch._foreach_mul_(updated, 1 - rate * group["shrink"])
    optimiser.step()


def _kind(options: OptimiserOptions) -> tuple[Any, dict[str, Any]]:
    """The class of an optimiser, and its settings.

    rmsprop_tf is TensorFlow's form: epsilon inside the root, averages that start at 1, the rate inside the momentum. lars
    scales rates by the norms of weight and gradient (You et al., arXiv:1708.03888), but for plain parameters.
    """
    from timm.optim.lars import Lars
    from timm.optim.rmsprop_tf import RMSpropTF

    momentum, small = {"momentum": options.momentum}, {"eps": options.epsilon or 1e-8}
    rmsprop = {**momentum, "alpha": options.rmsprop_decay}
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "sgd": (torch.optim.SGD, {}),
        "momentum": (torch.optim.SGD, momentum),
        "nesterov": (torch.optim.SGD, {**momentum, "nesterov": True}),
        "adam": (torch.optim.Adam, {"betas": options.betas, **small}),
        "adamw": (torch.optim.Adam, {"betas": options.betas, **small}),
        "rmsprop": (torch.optim.RMSprop, {**rmsprop, **small}),
        "rmsprop_tf": (RMSpropTF, {**rmsprop, "eps": options.epsilon or 1e-3}),
        "lars": (Lars, {**momentum, "trust_coeff": options.trust, **small}),
    }
    return kinds[options.name]
