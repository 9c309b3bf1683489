"""What is known of a network before it is built."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.model.card import Recipe

IMAGENET_LABELS = "bulkinfer.zoo.imagenet:labels"


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """The facts of a network.

    `builder`, `labels` and `adapter` are "module:function". builder(architecture) is the network, untrained, taking float32
    N x 3 x H x W; labels() are its classes (empty: unknown); adapter(architecture, state) turns the tensors of a published file
    into those of the network (empty: they are the same). `num_parameters` 0 is counted once the network is built.
    `weights_file` is the name under which the weights are published, with a prefix of their sha256 before the suffix where the
    publisher gives one. They lie in `package` (import name) at `package_file`, in the repository `hub` of the Hugging Face hub,
    or at `urls`.
    """

    builder: str
    architecture: str
    recipe: Recipe
    labels: str
    num_parameters: int
    licence: str
    origin: str
    weights_file: str
    package: str = ""
    package_file: str = ""
    hub: str = ""
    urls: tuple[str, ...] = ()
    adapter: str = ""

    @property
    def size_bytes(self) -> int:
        """Size of the parameters as float32."""
        return 4 * self.num_parameters
