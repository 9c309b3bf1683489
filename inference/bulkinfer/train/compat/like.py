"""The defaults of another trainer, which --like takes: they depend on the data, the network and the options that are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bulkinfer.errors import UsageError
from bulkinfer.model.names import plain
from bulkinfer.train.compat.network_spelling import spelled
from bulkinfer.train.compat.reference_flags import Row, blocks
from bulkinfer.train.network.network_names import TRAINABLE
from bulkinfer.types import Given

_FAMILIES = ("efficientnet", "mobilenet", "resnext", "resnet")  # a name with resnext has no resnet of its own


@dataclass(slots=True)
class Facts:
    """What the defaults depend on: `options` that are known, as texts by name; `data_kind(options)` is small or large."""

    options: dict[str, str]
    data_kind: Callable[[Mapping[str, str]], str]
    _kind: str = ""  # as data_kind looks into folders

    def hold(self, when: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether all conditions of a block hold."""
        return all(self._holds(self._fact(name), legal) for name, legal in when.items())

    def _holds(self, found: str, legal: tuple[str, ...]) -> bool:
        """Whether a fact is one of the legal ones; none: the option is not given; any: it has a value."""
        return found in legal or (bool(found) if "any" in legal else not legal and not found)

    def _fact(self, name: str) -> str:
        if name == "data":
            self._kind = self._kind or self.data_kind(self.options)
            return self._kind
        if name == "family":
            return family(self.options.get("model", ""), self.options.get("model_size", ""))
        return self.options.get(name, "").lower()


def family(model: str, size: str) -> str:
    """The family of a network in any spelling; empty for one of timm, and for a name that is reported when it is built."""
    try:
        name = plain(spelled(model or ("" if size else "resnet"), size))
    except UsageError:
        return ""
    is_ours = name in map(plain, TRAINABLE)
    return next((family for family in _FAMILIES if is_ours and family in name), "")


def flags_of(trainer: str, facts: Facts, table: Mapping[str, Row]) -> list[Given]:
    """What --like takes of a trainer, as flags; later ones win. The facts are completed with what each block takes."""
    found, given = list[Given](), set(facts.options)
    for block in blocks(trainer):
        if not facts.hold(block.when):
            continue
        for name, value in block.take.items():
            row, text = table.get(name), str(value).lower() if isinstance(value, bool) else str(value)
            found.append(Given(name, text, f"--like {trainer}"))
            option, ours = (name, text) if row is None else (row.ours[0], row.map.get(text, text))
            if option not in given:
                facts.options[option] = ours
    return found
