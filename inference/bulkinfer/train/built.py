"""The network of a run: built from its options, with the channels that pictures have turned into those that it takes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bulkinfer.train.networks import NetworkOptions, build_network

_PICTURE_CHANNELS = 3


class _Channels(nn.Module):
    """Gives `network` the first of the three channels, or all of them and zeros behind."""

    def __init__(self, network: nn.Module, channels: int) -> None:
        super().__init__()
        self.network, self._channels = network, channels

    def forward(self, images_NCHW: Tensor) -> Any:
        if self._channels <= _PICTURE_CHANNELS:
            return self.network(images_NCHW[:, : self._channels])
        padding = self._channels - _PICTURE_CHANNELS
        return self.network(nn.functional.pad(images_NCHW, (0, 0, 0, 0, 0, padding)))


def build(options: NetworkOptions) -> nn.Module:
    """The network, initialised under torch's current random state; takes N x 3 x H x W whatever its first layer takes."""
    network: nn.Module = build_network(options)
    return network if options.input_channels == _PICTURE_CHANNELS else _Channels(network, options.input_channels)


def rebuild(options: dict[str, Any], weights: dict[str, Tensor]) -> nn.Module:
    """The network of a checkpoint, in float32 and evaluation mode. `options` are a NetworkOptions as JSON holds it.

    Built as it was, and not on torch's meta device: some networks of timm have buffers that no state dict holds.
    """
    network = build(NetworkOptions(**options))
    network.load_state_dict(weights)  # copies into float32
    return network.eval()
