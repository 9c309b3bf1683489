"""get_model with --model_path s3://bucket/models: the network is made in the user's cache, and its files are put there.

Readers see a network whole or not at all: its card is the last file that is put, and of one that is replaced the first that is
removed. What somebody else publishes under the same name at the same time is not replaced.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bulkinfer.config import GetModelConfig
from bulkinfer.errors import AbsentObjectError, ConflictError, ObjectError, RunError, UsageError, renaming
from bulkinfer.export.model_folder import OURS, ModelFolder
from bulkinfer.files.addresses import public
from bulkinfer.files.atomic import publishing
from bulkinfer.files.guarded import JSON_BYTES, read_bytes
from bulkinfer.files.user_cache import user_cache
from bulkinfer.model.card import CARD, VARIANTS
from bulkinfer.model.names import nearest
from bulkinfer.model.stored_network import FOLDER, stored_names
from bulkinfer.stores.fetch import fetch_object
from bulkinfer.stores.store import WEB, Store, open_store

log = logging.getLogger("bulkinfer")

_PARTS = (*VARIANTS, "")  # the network itself comes last
_MOST_BYTES = 1 << 40  # of a file that is fetched; it is checked afterwards


@dataclass(frozen=True)
class _Place:
    """The folder of a network, or of its variant, in a store: its prefix there, and the sizes in bytes of its files."""

    store: Store
    address: str
    prefix: str
    sizes: dict[str, int]

    @classmethod
    def of(cls, address: str) -> _Place:
        store, prefix = open_store(address)
        listed = (each for page in store.list(prefix) for each in page)
        sizes = {each.key[len(prefix) :].lstrip("/"): each.size_bytes for each in listed}
        return cls(store, address, prefix, {name: size for name, size in sizes.items() if _is_ours(name)})

    def card(self) -> bytes:
        """The bytes of the card; empty if there is none."""
        try:
            return self.store.get(f"{self.prefix}/{CARD}", JSON_BYTES, lambda _size: None)
        except AbsentObjectError:
            return b""


def make_in_store(config: GetModelConfig, address: str, make: Callable[[GetModelConfig], ModelFolder]) -> ModelFolder:
    """Have `make` make a network, and publish it below `address`; returns its folder in the cache.

    Raises what `make` raises, UsageError for an address that nothing can be put to, and RunError if it cannot be put.
    """
    if address.partition("://")[0] in WEB:
        raise UsageError(f"--model_path {public(address)}: a web server cannot be written to: give a bucket, or a folder")
    models = user_cache(FOLDER) / "made" / hashlib.sha256(address.encode()).hexdigest()[:24]
    try:
        with renaming(models, address):
            return _make(config, address, models, make)
    except ConflictError:
        raise RunError(f"{public(address)}: another get_model publishes this network: run get_model again") from None
    except ObjectError as error:
        raise RunError(f"{public(address)}: its files cannot be read or put: {error}: run get_model again") from None


def _make(config: GetModelConfig, address: str, models: Path, make: Callable[[GetModelConfig], ModelFolder]) -> ModelFolder:
    name, _ = nearest(stored_names(address), config.name or config.model_name)
    if name:
        for part in _PARTS:
            _fetch(_Place.of(_joined(address, name, part)), models / name / part)
    made = make(replace(config, model_path=str(models)))
    network = models / made.name
    for part in _PARTS:
        if (network / part / CARD).is_file():
            _put(network / part, _Place.of(_joined(address, made.name, part)))
    return made


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _is_ours(name: str) -> bool:
    return name == CARD or bool(OURS.fullmatch(name))


def _fetch(place: _Place, folder: Path) -> None:
    """Make a folder as the one in the store, if that has a card: get_model goes on with what is there."""
    card, there = place.card(), folder / CARD
    if not card:
        return
    folder.mkdir(parents=True, exist_ok=True)
    is_same = there.is_file() and read_bytes(there, JSON_BYTES) == card
    if not is_same:
        there.unlink(missing_ok=True)
    for name in _without_card(place.sizes):
        path = folder / name
        if not (path.is_file() and is_same):
            with publishing(path) as temporary:
                fetch_object(f"{place.address}/{name}", temporary, _MOST_BYTES)
    with publishing(there) as temporary:
        temporary.write_bytes(card)


def _put(folder: Path, place: _Place) -> None:
    """Put what the store lacks of a folder, and remove what is left there of an export that it replaces."""
    card, before = read_bytes(folder / CARD, JSON_BYTES), place.card()
    names = _without_card([path.name for path in folder.iterdir() if _is_ours(path.name)])
    if before and card != before:
        place.store.delete(f"{place.prefix}/{CARD}")
    if card == before:
        names = [name for name in names if name not in place.sizes]
    for name in names:
        content = read_bytes(folder / name, _MOST_BYTES)
        if not (name.startswith("weights-") and place.sizes.get(name) == len(content)):  # named by its content
            place.store.put(f"{place.prefix}/{name}", content)
    if card != before:
        for name in _without_card(place.sizes):
            if not (folder / name).exists():
                place.store.delete(f"{place.prefix}/{name}")
        place.store.put(f"{place.prefix}/{CARD}", card, only_new=True)
    log.info(f"published: {public(place.address)}" if names or card != before else f"is there: {public(place.address)}")


def _without_card(names: Sequence[str] | dict[str, int]) -> list[str]:
    """The names of the other files: sidecars behind their graphs, which do not count without them."""
    return sorted((name for name in names if name != CARD), key=lambda name: (name.endswith(".json"), name))
