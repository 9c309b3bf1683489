"""A network in a store, such as s3://bucket/models/NAME: fetched once into the user's cache, and checked by its hashes there.

The folder in the cache is named by the hash of the cards, which hold the hash of the weights. So a network that is published
again gets another folder, and one that is in use does not change. Files of a folder are complete or absent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bulkinfer.errors import AbsentObjectError, BulkinferError, DamagedError, ObjectError, RunError, UsageError, renaming
from bulkinfer.files.addresses import public
from bulkinfer.files.atomic import file_sha256, publishing, remove_stale_temporaries
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.guarded import GRAPH_BYTES, JSON_BYTES, read_bytes
from bulkinfer.files.user_cache import user_cache
from bulkinfer.model.card import CARD, ModelCard, graph_path, read_card, read_sidecar, readable_card
from bulkinfer.model.graph_checks import ARRAYS_BYTES, GOLDEN_FILE, read_golden
from bulkinfer.model.names import nearest, require_name
from bulkinfer.stores.fetch import fetch_object
from bulkinfer.stores.objects import read_object
from bulkinfer.stores.store import open_store
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")

FOLDER = "models"  # in the user's cache
_MOST_PAGES = 10  # of a listing that is read for names of networks


def stored_names(models: str) -> list[str]:
    """The names of the networks below the address `models`; empty if they cannot be listed, as those of a web server."""
    found, (store, prefix) = list[str](), open_store(models)
    with suppress(ObjectError, UsageError):
        for number, page in enumerate(store.list(prefix)):
            names = [each.key[len(prefix) :].strip("/").split("/") for each in page]
            found += [parts[0] for parts in names if parts[1:] == [CARD]]
            if number == _MOST_PAGES:
                break
    return found


class Fetched(NamedTuple):
    """A network in the cache: its folder there, its address, and the variant in it that runs; "": the network itself.

    If there is no such network the folder does not exist, and `others` are the nearest names.
    """

    network: Path
    address: str
    variant: str = ""
    others: tuple[str, ...] = ()


def fetch_network(models: str, name: str, batch_size: int, variant_of: Callable[[Path], str] = lambda _: "") -> Fetched:
    """Fetch what a launch with this batch size needs of the network `name` below the address `models`.

    `variant_of` says by the folder with the card which variant runs; of that its files are fetched, not those of the network.
    Raises RunError that says only what is wrong with the network, StoreError or UsageError if its store cannot be used.
    """
    require_name(name)
    address = f"{models}/{name}"
    card = _card(address)
    if card is None:
        same, others = nearest(stored_names(models), name)
        if not same:
            return Fetched(user_cache(FOLDER) / "none" / name, address, others=tuple(others))
        address = f"{models}/{same}"
        card = _card(address) or b""
    cards = {"": card}
    if variant := variant_of(_with_cards(address, cards)):
        cards[variant] = _card(f"{address}/{variant}") or b""
    return Fetched(_fetch(address, cards, batch_size), address, variant)


def fetch_again(fetched: Fetched, batch_size: int) -> bool:
    """Replace what is damaged in the cache; False if nothing is."""
    network, address, variant, _ = fetched
    folder = network / variant
    parts = dict.fromkeys(["", variant])
    damaged = [path for path in _hashed_files(folder) if not _is_as_recorded(folder, path)]
    for path in damaged:
        log.warning(f"warning: {path} is damaged, and is fetched again")
        path.unlink()
    if damaged:
        _fetch(address, {part: read_bytes(network / part / CARD, JSON_BYTES) for part in parts}, batch_size)
    return bool(damaged)


def fetch_folder(address: str, folder: Path, batch_size: int) -> None:
    """Fetch the network or variant at `address` into a folder of this host, which another host has chosen.

    Raises as fetch_network does, and UsageError for a graph of this batch size that the other host made and nobody published.
    """
    card = _card(address)
    if card is None:
        raise UsageError(f"{public(address)}/{CARD} does not exist")
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / "lock", lambda: None):
        with publishing(folder / CARD) as temporary:
            temporary.write_bytes(card)
        _fetch_files(address, folder, read_card(folder / CARD), batch_size)
    if not graph_path(folder, batch_size).exists():
        models, _, name = address.rpartition("/")
        command = f"get_model --model_name {shell_word(name)} "
        command += f"--batch_size {shell_word(str(batch_size))} --model_path {shell_word(models)}"
        raise UsageError(f"{public(address)} has no graph of batch size {batch_size}: run {command}")


def read_stored_card(models: str, name: str) -> ModelCard | None:
    """The card of a network below the address `models`; None if it is missing or damaged, or cannot be read."""
    try:
        content = _card(f"{models}/{name}")
        return None if content is None else readable_card(_with_cards("", {"": content}))
    except BulkinferError:
        return None


def _card(address: str) -> bytes | None:
    """The bytes of a card; None if there is none."""
    try:
        return _content(f"{address}/{CARD}", JSON_BYTES)
    except AbsentObjectError:
        return None


def _content(address: str, most_bytes: int) -> bytes:
    try:
        return read_object(address, most_bytes)
    except AbsentObjectError:
        raise
    except ObjectError as error:
        raise _unreadable(address, error) from None


def _unreadable(address: str, error: ObjectError) -> UsageError:
    return UsageError(f"--model_path: {public(address)} cannot be read: {error}: mend that, and run the same command again")


def _with_cards(address: str, cards: dict[str, bytes]) -> Path:
    """The folder in the cache of a network with these cards, by the name of their part, with its cards in it."""
    content = hashlib.sha256(b"".join(hashlib.sha256(card).digest() for card in cards.values())).hexdigest()[:24]
    network = user_cache(FOLDER) / content / (address.rpartition("/")[2] or "network")
    try:
        for part, card in cards.items():
            (network / part).mkdir(parents=True, exist_ok=True)
            if card and not _holds(network / part / CARD, card):
                with publishing(network / part / CARD) as temporary:
                    temporary.write_bytes(card)
    except OSError as error:
        raise UsageError(
            f"networks of stores are kept in {network}, which cannot be written to ({error.strerror}): name another folder for "
            "caches with XDG_CACHE_HOME"
        ) from None
    return network


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and read_bytes(path, JSON_BYTES) == content


def _fetch(address: str, cards: dict[str, bytes], batch_size: int) -> Path:
    """Fetch what the last of the parts in `cards` lacks; returns the folder of the network."""
    network, part = _with_cards(address, cards), [*cards][-1]
    if not cards[part]:  # there is no such variant
        return network
    with renaming(network, address):  # what is wrong with the copy is wrong with the network
        card, folder = read_card(network / part / CARD), network / part
        if _is_complete(folder, card, batch_size):
            return network
        with exclusive(network.parent / "lock", lambda: log.info(f"waiting for another process that fetches {address}")):
            remove_stale_temporaries(folder)
            if not _is_complete(folder, card, batch_size):
                log.info(f"model: {public(address)} is fetched into {network}, once")
                _fetch_files(f"{address}/{part}".rstrip("/"), folder, card, batch_size)
    return network


def _is_complete(folder: Path, card: ModelCard, batch_size: int) -> bool:
    graphs = {graph_path(folder, batch_size), graph_path(folder, card.fixed_batch)}
    return (folder / card.external_data).exists() and any(graph.exists() for graph in graphs)


def _fetch_files(address: str, folder: Path, card: ModelCard, batch_size: int) -> None:
    """Fetch golden outputs, the graph of a batch size, or else the one that it can be made of, and last the weights."""
    with suppress(AbsentObjectError):  # no launch needs them
        _fetch_file(address, folder / GOLDEN_FILE, ARRAYS_BYTES, _golden_fault)
    for batch in dict.fromkeys((batch_size, card.fixed_batch)):
        with suppress(AbsentObjectError):
            _fetch_graph(address, graph_path(folder, batch))
            break
    wanted = card.external_data_sha256
    with suppress(AbsentObjectError):  # the launch says so
        _fetch_file(address, folder / card.external_data, card.most_weights_bytes, lambda path: _differs(path, wanted))


def _fetch_graph(address: str, graph: Path) -> None:
    if graph.exists():
        return
    sidecar = graph.with_suffix(".json")
    content = _content(f"{address}/{sidecar.name}", JSON_BYTES)
    with publishing(sidecar) as temporary:
        temporary.write_bytes(content)
    wanted = read_sidecar(graph).sha256
    _fetch_file(address, graph, GRAPH_BYTES, lambda path: _differs(path, wanted))


def _fetch_file(address: str, final: Path, most_bytes: int, fault: Callable[[Path], str]) -> None:
    """Publish a file of the network unless it is there. Raises RunError if `fault` says what is wrong with its content."""
    if final.exists():
        return
    place = f"{address}/{final.name}"
    with publishing(final) as temporary:
        try:
            fetch_object(place, temporary, most_bytes)
        except AbsentObjectError:
            raise
        except ObjectError as error:
            raise _unreadable(place, error) from None
        if reason := fault(temporary):
            raise RunError(f"{public(place)} is not what its record says ({reason})")


def _golden_fault(path: Path) -> str:
    try:
        read_golden(path)
    except DamagedError:
        return "it holds no arrays"
    return ""


def _differs(path: Path, wanted: str) -> str:
    found = file_sha256(path)
    return "" if found == wanted else f"sha256 {found[:12]}, recorded {wanted[:12]}"


def _hashed_files(folder: Path) -> list[Path]:
    card: Any = readable_card(folder)
    weights = [folder / card.external_data] if card is not None and (folder / card.external_data).exists() else []
    return [*weights, *sorted(folder.glob("model*.onnx"))]


def _is_as_recorded(folder: Path, path: Path) -> bool:
    try:
        if path.suffix == ".onnx":
            return file_sha256(path, most_bytes=GRAPH_BYTES) == read_sidecar(path).sha256
        return file_sha256(path) == read_card(folder / CARD).external_data_sha256
    except (DamagedError, UsageError):
        return False
