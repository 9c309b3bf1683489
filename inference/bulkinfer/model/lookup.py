"""The network that a launch asks for: its folder, whatever the spelling of its name, its files, checked, and how to make it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, StoreError, UsageError, renaming
from bulkinfer.files.addresses import address_of
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.user_path import find_data_dir, real_path, require_utf8
from bulkinfer.files.wrong_file import describe_wrong_file
from bulkinfer.host.isolated_call import ask
from bulkinfer.model.batch_memory import require_batch_fits
from bulkinfer.model.card import (
    CALIBRATED,
    CARD,
    VARIANTS,
    GraphSidecar,
    ModelCard,
    check_graph_files,
    graph_path,
    is_made_of,
    read_card,
    readable_card,
    variant_folder,
)
from bulkinfer.model.integrity import damage, variant_damage
from bulkinfer.model.made_with import Again, again_from_folder, made_again, made_again_from, unknown_source
from bulkinfer.model.names import named_folder
from bulkinfer.model.stored_network import fetch_again, fetch_network
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True)
class Model:
    """A network ready to run: its card, and the graph of the batch size asked for, with its sidecar.

    If a variant runs, all three are those of the variant. `address` is where the folder of the graph lies in a store; empty:
    it does not.
    """

    card: ModelCard
    sidecar: GraphSidecar
    graph: Path
    address: str = ""


def find_model(
    config: LaunchConfig,
    providers: Collection[str],
    is_published: Callable[[str], bool] = lambda _: True,
    before_making: Callable[[], object] = lambda: None,
) -> Model:
    """The graph of the network or of its variant that `providers` (keys of PROVIDERS) run for `config`, its files checked.

    If the network has no graph of this batch size, it is made from the graph of free batch in the same folder, and checked.
    In a dry run it is not: the sidecar is the one that the graph would get, and `graph` is where it would be.
    `is_published` says whether get_model can make a network of this name without the files of a user. `before_making` is
    called before a graph is made, which takes seconds, and may raise.
    Raises UsageError that names the get_model command if a file is missing, damaged or of another export.
    """
    if address_of(config.model_path):
        return _stored_model(config, providers, is_published, before_making)
    network, others = named_folder(config.model_path, config.model_name)
    require_utf8(network, "--model_path")
    return _model_in(config, network, others, providers, is_published, before_making)


def _model_in(
    config: LaunchConfig,
    network: Path,
    others: list[str],
    providers: Collection[str],
    is_published: Callable[[str], bool],
    before_making: Callable[[], object],
) -> Model:
    """The same in the folder of a network; `others` are the nearest names if there is none."""
    if (known := readable_card(network)) is not None:
        require_batch_fits(config.batch_size, known.recipe)
    folder = variant_folder(network, config.precision) if _runs_variant(network, config.precision, providers) else network
    try:
        model = _checked(network, folder, config.batch_size, before_making, dry_run=config.dry_run)
    except RunError as error:  # for a launch it is a usage error: nothing was started
        nearest = f"; nearest of what {config.model_path} holds: {', '.join(others)}" if others else ""
        raise UsageError(f"{error}: {_advice(config, network, folder, is_published)}{nearest}") from None
    if folder == network and folder.name in VARIANTS and model.card.calibration is not None:
        owner = network.absolute().parent
        raise UsageError(
            f"--model_name {config.model_name}: {network} is the {folder.name} variant of {owner.name}: "
            f"use --model_path {shell_word(owner.parent)} --model_name {shell_word(owner.name)} --precision {folder.name}"
        )
    check_columns(config, model.card)
    return model


def _stored_model(
    config: LaunchConfig,
    providers: Collection[str],
    is_published: Callable[[str], bool],
    before_making: Callable[[], object],
) -> Model:
    """The same of a network in a store, by its folder in the cache. What is wrong with that is wrong in the store."""
    models, batch_size = address_of(config.model_path).rstrip("/"), config.batch_size

    def variant_of(network: Path) -> str:
        return config.precision if _runs_variant(network, config.precision, providers) else ""

    try:
        fetched = fetch_network(models, config.model_name, batch_size, variant_of)
    except StoreError:
        raise
    except RunError as error:
        raise UsageError(f"--model_path: {error}: publish the network again, then run the same command") from None
    arguments = (fetched.network, list(fetched.others), providers, is_published, before_making)
    with renaming(fetched.network, fetched.address):  # what is wrong with the copy is wrong with the network
        try:
            model = _model_in(config, *arguments)
        except UsageError:
            if not fetch_again(fetched, batch_size):
                raise
            model = _model_in(config, *arguments)
        return replace(model, address="/".join(filter(None, (fetched.address, fetched.variant))))


def _runs_variant(network: Path, precision: str, providers: Collection[str]) -> bool:
    """True if `providers` need a variant for `precision`; an adopted network that computes in it already runs as it is."""
    (needed,) = {precision in PROVIDERS[name].variants for name in providers}  # candidates of one launch run the same graph
    card = readable_card(network)
    return needed and not (card is not None and card.precision == precision)


def _checked(network: Path, folder: Path, batch_size: int, before_making: Callable[[], object], *, dry_run: bool) -> Model:
    """The graph in `folder`, which is `network` or the folder of its variant. Raises RunError that says only what is wrong."""
    graph = graph_path(folder, batch_size)
    made = None if graph.exists() else _make_graph(network, folder, batch_size, before_making, dry_run=dry_run)
    planned = made if dry_run else None
    there = 0 if planned else batch_size  # the batch size of the graph that can be looked at: a dry run makes none
    for path in (folder / CARD, graph_path(folder, there), graph_path(folder, there).with_suffix(".json")):
        if not path.exists():
            raise RunError(f"{path} does not exist")
    card, sidecar, resolved = check_graph_files(folder, there)
    if planned:
        sidecar, resolved = planned, real_path(graph)
    weights = resolved.parent / card.external_data
    if not weights.exists():
        raise RunError(f"{weights}, the weights of {graph}, do not exist")
    if (found := file_sha256(weights, most_bytes=card.most_weights_bytes)) != card.external_data_sha256:
        why = describe_wrong_file(weights) or f"sha256 {found[:12]}, recorded {card.external_data_sha256[:12]}"
        raise RunError(f"{weights} is not what card.json records ({why})")
    if misfit := _misfit(card, sidecar, batch_size):
        raise RunError(f"{folder / CARD} does not fit {graph.name} ({misfit})")
    if folder != network and not _belongs(network, card):
        raise RunError(f"{folder} was made of another export of the network than the one in {network}")
    return Model(card, sidecar, resolved)


def _make_graph(
    network: Path, folder: Path, batch_size: int, before_making: Callable[[], object], *, dry_run: bool
) -> GraphSidecar | None:
    """Make the graph of a batch size that `folder` lacks, in another process. None if the folder has nothing to make it from.

    A dry run writes nothing. It needs the hash of the graph, which is part of the fingerprint, and the shapes. Both follow from
    the graph of free batch: the other process derives them in memory, and leaves out the check against the golden outputs.

    Raises UsageError if the folder cannot be written to, or its network runs at another batch size only; RunError if the graph
    could not be made, or differs from the network.
    """
    card, graph = readable_card(folder), graph_path(folder, batch_size)
    if card is None or card.fixed_batch == batch_size or not (card.fixed_batch or graph_path(folder, 0).exists()):
        return None
    sizes = sorted(int(path.stem[6:]) for path in folder.glob("model_*.onnx") if path.stem[6:].isdecimal())
    use = f"use --batch_size {shell_word(str(sizes[-1]))}" if sizes else "get a copy of it that can"
    if card.fixed_batch:
        raise UsageError(
            f"--batch_size {batch_size}: {card.name} runs at batch {card.fixed_batch} only, because its graph fixes that batch "
            f"inside: use --batch_size {shell_word(str(card.fixed_batch))}"
        )
    if not all(os.access(place, os.W_OK) for place in (network, folder)):
        raise UsageError(f"{graph} does not exist, and cannot be made, because {folder} cannot be written to: {use}")
    before_making()
    when = "a launch makes it from model.onnx and checks it" if dry_run else "it is made from model.onnx and checked"
    log.info(f"model: {graph} does not exist: {when}, once")
    places = {"network": str(real_path(network)), "folder": str(real_path(folder))}
    question = {**places, "batch_size": batch_size, "dry_run": dry_run}
    answer = ask("bulkinfer.model.batch_graph", question, f"--batch_size {batch_size}")
    if isinstance(answer, str):
        raise RunError(f"{graph} does not exist, and making it failed ({answer})")
    return GraphSidecar(**answer)


def _belongs(network: Path, variant: ModelCard) -> bool:
    """True if the variant was made of the present export of its network: that of a replaced one would give its answers.

    A variant without a network beside it runs too, as only its own folder may be copied to the machine that runs it.
    """
    return not (network / CARD).exists() or is_made_of(variant, read_card(network / CARD))


def _misfit(card: ModelCard, sidecar: GraphSidecar, batch_size: int) -> str:
    """How card and graph contradict each other; empty if they do not.

    With such a contradiction, workers would fail on every picture or name classes wrongly.
    """
    height, width = card.recipe.height, card.recipe.width
    expected = [batch_size, height, width, 3] if card.input == "uint8" else [batch_size, 3, height, width]
    shapes = list(sidecar.inputs.values())
    if shapes != [expected]:
        return f"workers prepare a {card.input} input of {expected}, the graph takes {shapes}"
    num_classes = sidecar.outputs[card.classified][-1] if card.classified else 0
    if card.labels and len(card.labels) != num_classes:
        return f"{len(card.labels)} labels for {num_classes} classes"
    return ""


def check_columns(config: LaunchConfig, card: ModelCard) -> None:
    """Raises UsageError with the legal values if --save names a column that the network does not have."""
    legal = [*(["topk"] if card.classified else []), *card.outputs, "none"]
    for name in config.save:
        if name not in legal:
            raise UsageError(f"--save {name}: {card.name} has only {', '.join(legal)}")
    if config.save_precision != LaunchConfig.save_precision and not set(card.outputs) & set(config.save):
        raise UsageError(
            f"--save_precision applies to saved outputs, and none is saved: name one with --save ({', '.join(card.outputs)})"
        )


def _advice(config: LaunchConfig, network: Path, folder: Path, is_published: Callable[[str], bool]) -> str:
    """What to do so that `folder`, which is `network` or the folder of its variant, gets the graph of `config`."""
    is_known = readable_card(network) or readable_card(folder) or made_again_from(network / CARD, network.name)
    if is_known or is_published(config.model_name):
        return f"run {get_model_command(config, network, folder)}"
    if not network.is_dir():
        return "get_model makes the networks that get_model --list prints, those of timm, and your own, and none is called so"
    return unknown_source(network.name)


def get_model_command(config: LaunchConfig, network: Path, folder: Path) -> str:
    """The command to type so that `folder`, which is `network` or the folder of its variant, gets the graph of `config`.

    It repeats the options of the existing network, as get_model would otherwise replace it by another one. A sound variant
    gets another batch size without pictures. A damaged network from a file or a run can only be made from that.
    """
    of_network = readable_card(network)
    card = of_network or readable_card(folder)  # the card of a variant says the same about its network
    again = made_again(card, network.name) if card is not None else made_again_from(network / CARD, network.name)
    if card is not None and (card.source == "zoo" or not _needs_its_source(network, of_network)):
        again = again_from_folder(card, config.model_name)
    if again is None:
        again = Again(["--model_name", config.model_name], [])
    variant = list[str]()
    if folder != network:
        variant = ["--precision", folder.name]
        if folder.name in CALIBRATED and variant_damage(folder, of_network):
            variant += ["--calibration_dir", str(find_data_dir(config.data_dir) or "PHOTOS")]
    return again.command(config.batch_size, config.model_path, variant)


def _needs_its_source(network: Path, card: ModelCard | None) -> bool:
    """True if there is a folder of the network, and it cannot give another batch size."""
    return network.is_dir() and (card is None or bool(damage(network, card)))
