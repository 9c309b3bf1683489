"""`bulkinfer train --ema d`: an exponential moving average of the weights, in float32, beside the network that is trained."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bulkinfer.train.network.networks import load_weights

log = logging.getLogger("bulkinfer")

_MOST_OF_FIRST = 0.05


class Ema:
    """The average a of the weights w: a = decay x a + (1 - decay) x w after each update; the first update sets a = w.

    The formula is that of torch.optim.swa_utils. Averages and counters of batch norm are copied from the network. `network` is
    the network with the averaged weights.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
        self._averaged = averaged.float()  # sums of 16 bits would not move

    @property
    def network(self) -> nn.Module:
        return self._averaged.module

    @property
    def updates(self) -> int:
        """The updates that it has followed."""
        return int(self._averaged.n_averaged)

    def follow(self, network: nn.Module) -> None:
        """Take in the weights after an update."""
        self._averaged.update_parameters(_Float32(network))  # type: ignore[arg-type] # it needs these two methods only

    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, with the averages of batch norm: those of a whole network."""
        found: dict[str, Tensor] = self.network.state_dict()
        return found

    def restore(self, tensors: Mapping[str, Tensor], updates: int, path: Path) -> None:
        """Go on from the tensors of the checkpoint at `path`. Raises RunError if they do not fit the network."""
        load_weights(self.network, dict(tensors), path)
        self._averaged.n_averaged.fill_(updates)


def warn_if_slow(decay: float, updates: int) -> None:
    """Log a warning if the average is still made of the first weights to a large share when the run ends."""
    share = decay**updates
    if decay and share > _MOST_OF_FIRST:
        log.warning(
            f"warning: --ema {decay:g}: after all {updates} updates it holds {100 * share:.0f} % of the first weights: "
            "give a smaller one, or train longer"
        )


class _Float32:
    """The parameters of a network in float32, which the average has, whatever they are in."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def parameters(self) -> Iterator[Tensor]:
        return (parameter.detach().float() for parameter in self._network.parameters())

    def buffers(self) -> Iterator[Any]:
        return self._network.buffers()
