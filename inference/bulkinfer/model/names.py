"""Names of networks, which are compared without regard to case and separators, and the folder that one means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from bulkinfer.errors import UsageError
from bulkinfer.model.card import CARD, VARIANTS
from bulkinfer.types import shell_word


def plain(name: str) -> str:
    """`name` in lower case without `-`, `_` and `:`. Every command takes two names with one plain form for the same network."""
    return name.lower().translate(str.maketrans("", "", "-_:"))


def named_folder(model_path: str, model_name: str) -> tuple[Path, list[str]]:
    """The folder of the network with this name, or with the same plain form; if there is none, also the nearest names.

    Raises UsageError for what can be no name, and for the folder of a variant, which --precision chooses.
    """
    require_name(model_name)
    models = Path(model_path)
    exact = models / model_name
    if exact.name in VARIANTS and exact.parent != models and (exact.is_dir() or (exact.parent / CARD).exists()):
        owner = exact.parent.relative_to(models) if exact.is_relative_to(models) else exact.parent
        raise UsageError(
            f"--model_name {model_name}: that is the {exact.name} variant of {owner}: "
            f"use --model_name {shell_word(owner)} --precision {exact.name}"
        )
    if exact.exists():
        return exact, []
    same, others = nearest(network_names(models), model_name)
    return models / (same or model_name), others


def network_names(models: Path) -> list[str]:
    """The names of the networks in a folder; empty if it is none."""
    return sorted(path.name for path in models.iterdir() if (path / CARD).is_file()) if models.is_dir() else []


def require_name(model_name: str) -> None:
    """Raises UsageError for what can be no name of a network."""
    if Path(model_name).name in ("", ".."):
        raise UsageError(f"--model_name {model_name!r} is no name of a network: give one, such as resnet18")


def nearest(names: Iterable[str], model_name: str) -> tuple[str, list[str]]:
    """The one of `names` with the plain form of `model_name`; if it is not exactly one, "" and the nearest."""
    by_name, wanted = {name: plain(name) for name in names}, plain(model_name)
    same = [name for name, plain_name in by_name.items() if plain_name == wanted]
    if len(same) == 1:
        return same[0], []
    near = difflib.get_close_matches(wanted, by_name.values(), 3, 0)
    return "", same or [name for plain_name in dict.fromkeys(near) for name in by_name if by_name[name] == plain_name]
