"""The defaults of another trainer, which --like takes: they depend on the data, the network and the options that are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bulkinfer.model.names import plain
from bulkinfer.train.compat.reference_flags import Row, blocks
from bulkinfer.types import Given

_FAMILIES = ("efficientnet", "mobilenet", "resnext", "resnet")  # a name with resnext has no resnet of its own


@dataclass(slots=True)
class Facts:
    """What the defaults depend on: `options` that are known, as texts by name; `data_kind(options)` is small or large."""

    options: dict[str, str]
    data_kind: Callable[[Mapping[str, str]], str]

    def hold(self, when: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether all conditions of a block hold. `any` is any value."""
        return all((found := self._fact(name)) in legal or (bool(found) and "any" in legal) for name, legal in when.items())

    def _fact(self, name: str) -> str:
        if name == "data":
            return self.data_kind(self.options)
        if name == "family":
            return family(self.options.get("model", ""), self.options.get("model_size", ""))
        return self.options.get(name, "").lower()


def family(model: str, size: str) -> str:
    """The family of a network in any spelling; empty for one of another family."""
    if size.lower().startswith("x"):
        return "resnext"
    if size.lower().startswith("b"):
        return "efficientnet"
    return next((name for name in _FAMILIES if name in plain(model or "resnet")), "")


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
