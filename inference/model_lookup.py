"""The network that a launch asks for: its folder by name, whatever the spelling, and its files, checked."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from inference.card import (
    CALIBRATED,
    GraphSidecar,
    ModelCard,
    check_graph_files,
    graph_path,
    is_made_of,
    read_card,
    variant_folder,
)
from inference.config import LaunchConfig
from inference.errors import RunError, UsageError
from inference.paths import file_sha256
from inference.providers import PROVIDERS
from inference.stand_ins import what_it_is_instead
from inference.zoo import plain


@dataclass(frozen=True)
class Model:
    """A network ready to run: its folder's card, and the graph of the batch size asked for, with its sidecar.

    Where a variant runs, all three are its own.
    """

    card: ModelCard
    sidecar: GraphSidecar
    graph: Path


def find_model(config: LaunchConfig, providers: Collection[str]) -> Model:
    """The graph that `providers` (keys of PROVIDERS) run for `config`: the network's or that of a variant, its files checked.

    Raises UsageError naming the get_model command where it is missing.
    """
    network, others = named_folder(config.model_path, config.model_name)
    folder = variant_folder(network, config.precision) if _runs_variant(network, config.precision, providers) else network
    command = _get_model_command(config, network, folder)
    graph = graph_path(folder, config.batch_size)
    for path in (folder / "card.json", graph, graph.with_suffix(".json")):
        if not path.exists():
            nearest = f"; nearest of what {config.model_path} holds: {', '.join(others)}" if others else ""
            raise UsageError(f"{path} does not exist: run {command}{nearest}")
    card, sidecar, resolved = check_graph_files(folder, config.batch_size)
    weights = resolved.parent / card.external_data
    if not weights.exists():
        raise UsageError(f"{weights}, the weights of {graph}, does not exist: run {command}")
    if (found := file_sha256(weights)) != card.external_data_sha256:
        why = what_it_is_instead(weights) or f"sha256 {found[:12]}, recorded {card.external_data_sha256[:12]}"
        raise RunError(f"{weights} is not what card.json records ({why}): run {command}")
    if misfit := _misfit(card, sidecar, config.batch_size):
        raise RunError(f"{folder / 'card.json'} does not fit {graph.name} ({misfit}): run {command}")
    if folder != network:
        _check_variant(network, folder, card, command)
    check_columns(config, card)
    return Model(card, sidecar, resolved)


def _runs_variant(network: Path, precision: str, providers: Collection[str]) -> bool:
    """Not a network that somebody else made in this precision already: it runs as it is."""
    (needed,) = {precision in PROVIDERS[name].variants for name in providers}  # candidates of one launch run the same graph
    card = network / "card.json"
    return needed and not (card.exists() and read_card(card).precision == precision)


def _get_model_command(config: LaunchConfig, network: Path, folder: Path) -> str:
    """What brings the missing files; a variant that is there needs no pictures to get another batch size."""
    words = ["get_model", "--model_name", config.model_name, "--batch_size", str(config.batch_size)]
    words += ["--model_path", config.model_path] if config.model_path != LaunchConfig.model_path else []
    if folder != network:
        words += ["--precision", config.precision]
        if config.precision in CALIBRATED and not (folder / "card.json").exists():
            words += ["--calibration_dir", "PICTURES"]
    return shlex.join(words)


def _check_variant(network: Path, folder: Path, card: ModelCard, command: str) -> None:
    """Raises RunError for a variant of an export that another has replaced since: it would give that one's answers.

    It runs without the network beside it, as a copy of its folder alone may lie on the machine that runs it.
    """
    if (network / "card.json").exists() and not is_made_of(card, read_card(network / "card.json")):
        pictures = " --calibration_dir PICTURES" if folder.name in CALIBRATED else ""
        raise RunError(f"{folder} was made of another export of the network than the one in {network}: run {command}{pictures}")


def _misfit(card: ModelCard, sidecar: GraphSidecar, batch_size: int) -> str:
    """Where card and graph contradict each other; empty if nowhere.

    Workers would otherwise fail on every picture, or call classes by wrong names.
    """
    height, width = card.recipe.height, card.recipe.width
    expected = [batch_size, height, width, 3] if card.input == "uint8" else [batch_size, 3, height, width]
    shapes = list(sidecar.inputs.values())
    if shapes != [expected]:
        return f"a {card.input} input of {expected} is prepared, the graph takes {shapes}"
    num_classes = sidecar.outputs[card.classified][-1] if card.classified else 0
    if card.labels and len(card.labels) != num_classes:
        return f"{len(card.labels)} labels for {num_classes} classes"
    return ""


def check_columns(config: LaunchConfig, card: ModelCard) -> None:
    """Raises UsageError with the legal values for a column that the network cannot give."""
    legal = [*(["topk"] if card.classified else []), *card.outputs, "none"]
    for name in config.save:
        if name not in legal:
            raise UsageError(f"--save {name}: {card.name} has only {', '.join(legal)}")
    if config.save_precision != LaunchConfig.save_precision and not set(card.outputs) & set(config.save):
        raise UsageError(f"--save_precision is of saved outputs, and none is: name one with --save ({', '.join(card.outputs)})")


def named_folder(model_path: str, model_name: str) -> tuple[Path, list[str]]:
    """The folder of the network by its name or, as get_model takes it, its plain form; where none is, the nearest names."""
    models = Path(model_path)
    exact = models / model_name
    if exact.exists() or not models.is_dir():
        return exact, []
    by_name = {path.name: plain(path.name) for path in sorted(models.iterdir()) if (path / "card.json").is_file()}
    wanted = plain(model_name)
    same = [name for name, plain_name in by_name.items() if plain_name == wanted]
    if len(same) == 1:
        return models / same[0], []
    near = difflib.get_close_matches(wanted, by_name.values(), 3, 0)
    return exact, same or [name for plain_name in dict.fromkeys(near) for name in by_name if by_name[name] == plain_name]
