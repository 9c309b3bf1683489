"""Which class of a network a label means: by name, by a synonym in the name, by WordNet id, or by number."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bulkinfer.config import LaunchConfig
from bulkinfer.files.addresses import address_of, public
from bulkinfer.model.card import CARD, readable_card
from bulkinfer.model.names import named_folder
from bulkinfer.model.stored_network import read_stored_card
from bulkinfer.results.job_file import JobFile, json_sha256
from bulkinfer.types import printable_path

_WNID = re.compile(r"(n[0-9]{8})(?:[ _-].*)?")  # also as in n02123045_tabby
_IMAGENET = 1000  # classes
_MOST_DIGITS = 9  # of a class number, which is an int32


class ClassNames:
    """The classes of a network, by number from 0. `names` is empty if they are not known: only numbers mean a class then.

    `why_unknown` says why, in words.
    """

    def __init__(self, names: Sequence[str], why_unknown: str = "") -> None:
        self._names, self.why_unknown = tuple(names), why_unknown
        self._by_name = _numbers_by((name, [_plain(name)]) for name in self._names)
        self._by_synonym = _numbers_by((name, _synonyms(name)) for name in self._names)
        self._by_wnid: dict[str, int] | None = None

    def name(self, number: int) -> str:
        """The name of a class; empty if it has none."""
        return self._names[number] if 0 <= number < len(self._names) else ""

    def find(self, label: str) -> tuple[int, ...]:
        """The classes that a label may mean: one; none if it fits no class; several if that is not clear.

        The first of these that fits decides: the whole name of a class; one of its synonyms, which commas separate ("tabby" is
        "tabby, tabby cat"); a WordNet id, where the network has the 1000 classes of ImageNet; the number of a class. Case
        does not count, and `_` is a blank. Raises RunError if a WordNet id needs the package that is not installed.
        """
        if found := self._by_name.get(_plain(label)):
            return found
        if shared := {number for each in _synonyms(label) for number in self._by_synonym.get(each, ())}:
            return tuple(sorted(shared))
        if len(self._names) == _IMAGENET and (wnid := _WNID.fullmatch(label)):
            if self._by_wnid is None:
                from bulkinfer.datasets.imagenet import wnids  # with it come the readers of all data sets

                self._by_wnid = {name: number for number, name in enumerate(wnids())}
            return (self._by_wnid[wnid[1]],) if wnid[1] in self._by_wnid else ()
        is_number = label.isascii() and label.isdigit() and len(label) <= _MOST_DIGITS
        return (int(label),) if is_number and (not self._names or int(label) < len(self._names)) else ()

    def __len__(self) -> int:
        return len(self._names)

    def nearest(self, label: str) -> str:
        """The name of a class, or one of its names, that is spelled most like `label`; empty if none is near."""
        return next(iter(difflib.get_close_matches(_plain(label), sorted(self._by_synonym), 1, 0.5)), "")


def classes_of(job: JobFile, model_path: str = "") -> ClassNames:
    """The classes of the network that made the rows of a job, from its card in `model_path`, by default where the job had it.

    They are unknown if the card is not there, or has other class names than the job.
    """
    models = model_path or str(job.config.get("model_path") or LaunchConfig.model_path)
    name = str(job.config.get("model_name") or job.model_name)
    if address := address_of(models):
        card, where = read_stored_card(address.rstrip("/"), name), f"{public(address).rstrip('/')}/{name}/{CARD}"
    else:
        folder, _ = named_folder(models, name)
        card, where = readable_card(folder), printable_path(folder / CARD)
    if card is None:
        return ClassNames((), f"{where} is not there or damaged")
    if json_sha256(card.labels) != job.identity.get("labels_sha256"):
        return ClassNames((), f"{where} has other class names than the network of the job")
    return ClassNames(card.labels, "" if card.labels else f"{where} has no class names")


def _numbers_by(names: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[int, ...]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, (_, texts) in enumerate(names):
        for text in texts:
            found[text].append(number)
    return {text: tuple(numbers) for text, numbers in found.items()}


def _synonyms(name: str) -> set[str]:
    return {text for each in name.split(",") if (text := _plain(each))}


def _plain(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())
