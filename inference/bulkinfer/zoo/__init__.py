"""The networks that get_model knows: a dict from name to facts, and any `timm:NAME`. Only `build` imports torch.

To add a network, add an entry to a file beside this one. To add a source of networks, add such a file: its entries, and a
function that returns the network, untrained, taking float32 N x 3 x H x W (N batch, H height, W width).
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bulkinfer.errors import UsageError
from bulkinfer.host.install_hint import missing_package
from bulkinfer.model.names import plain
from bulkinfer.zoo import cadene, efficientnet_lite, timm
from bulkinfer.zoo.spec import NetworkSpec

if TYPE_CHECKING:
    import torch

__all__ = ["NETWORKS", "NetworkSpec", "adapter", "build", "find", "is_published", "labels", "quiet"]

NETWORKS: dict[str, NetworkSpec] = {**cadene.NETWORKS, **efficientnet_lite.NETWORKS}


def find(name: str) -> tuple[str, NetworkSpec]:
    """The name as folders use it, and the facts of a network; case, `-` and `_` do not matter, and timm_NAME is timm:NAME.

    Raises UsageError with the nearest three names, RunError if timm is needed and not installed.
    """
    source, is_of_source, architecture = name.lower().partition(":")
    if not is_of_source:
        source, is_of_source, architecture = name.lower().partition("_")
    if source == timm.PREFIX and is_of_source:
        spec: NetworkSpec = _call("bulkinfer.zoo.timm:spec", architecture)
        return f"{timm.PREFIX}_{architecture}", spec
    by_plain = {plain(known): known for known in NETWORKS}
    if known := by_plain.get(plain(name)):
        return known, NETWORKS[known]
    near = difflib.get_close_matches(plain(name), by_plain, 3, 0)
    raise UsageError(
        f"--model_name: no network is called {name!r}; nearest are {', '.join(by_plain[name] for name in near)}; "
        "get_model --list prints all"
    )


def is_published(name: str) -> bool:
    """True if a network of the zoo has this name, or the name is one for timm. Does not import timm."""
    return plain(name) in map(plain, NETWORKS) or name.lower().startswith((f"{timm.PREFIX}:", f"{timm.PREFIX}_"))


def build(name: str) -> torch.nn.Module:
    """Build the network in evaluation mode, with the weights that its package initialises it with.

    Raises RunError naming the install command if its package is missing.
    """
    spec = find(name)[1]
    network: torch.nn.Module = _call(spec.builder, spec.architecture)
    return network.eval()


def labels(name: str) -> tuple[str, ...]:
    """Class names in the order of the network's outputs, () if they are unknown. Raises RunError like `build`."""
    target = find(name)[1].labels
    return tuple(_call(target)) if target else ()


def adapter(name: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """The function that turns the tensors of a published file into those of the network."""
    spec = find(name)[1]
    return partial(_call, spec.adapter, spec.architecture) if spec.adapter else dict


def _call(target: str, *arguments: object) -> Any:
    module, _, function = target.partition(":")
    try:
        with quiet():
            return getattr(importlib.import_module(module), function)(*arguments)
    except ModuleNotFoundError as error:
        raise missing_package("get_model", error) from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what foreign packages print and warn about while they are imported, built and traced."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
