"""The flags of four other trainers, from references.yml: what each is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bulkinfer.files.guarded import TEXT_BYTES, read_text
from bulkinfer.train.compat.plain_yaml import parsed
from bulkinfer.train.options import LIKE
from bulkinfer.types import ForeignFlag

FILE = Path(__file__).with_name("references.yml")
SAME, VALUE_MAP, LEFT_OUT, REFUSED = "same", "value map", "left out", "refused"
TRAINERS = LIKE[1:]


@dataclass(frozen=True, slots=True)
class Row:
    """A flag of other trainers: references.yml says what its cells mean.

    `flag` has underscores. `ours` are the options that it sets; of a row that is left out or refused, the option that it will
    set when there is one. `validate` is its option of validate, if that is another one.
    """

    flag: str
    of: tuple[str, ...]
    values: str
    kind: str
    ours: tuple[str, ...] = ()
    map: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    implies: Mapping[str, str] = field(default_factory=dict)
    with_like: bool = False
    validate: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of what --like takes: options by name, if the conditions hold; see references.yml."""

    when: Mapping[str, tuple[str, ...]]
    take: Mapping[str, Any]


@cache
def rows() -> tuple[Row, ...]:
    """All rows of the table, in its order."""
    return tuple(map(_row, _table()["flags"]))


@cache
def blocks(trainer: str) -> tuple[Block, ...]:
    """What --like takes of a trainer, in order: later blocks win."""
    return tuple(
        Block({name: tuple(str(text).split()) for name, text in block.get("when", {}).items()}, block["take"])
        for block in _table()["defaults"][trainer]
    )


def rows_by_flag(like: str = "") -> dict[str, Row]:
    """The row that holds for each flag: with `like`, one of that trainer, if there is one."""
    found: dict[str, Row] = {}
    for row in rows():
        if row.with_like and like not in row.of:
            continue
        known = found.get(row.flag)
        if known is None or (like in row.of and like not in known.of):
            found[row.flag] = row
    return found


def foreign_flags(found: Mapping[str, Row]) -> dict[str, ForeignFlag]:
    """The flags of rows as words.py reads them. A flag that is also an option of ours takes the values of that, too."""
    known = {name: row.map for name, row in found.items() if row.values == "optional" and name not in row.ours}
    return {name: ForeignFlag(row.values, tuple(known.get(name, ()))) for name, row in found.items()}


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = parsed(read_text(FILE, TEXT_BYTES))
    return found


def _row(cells: Mapping[str, Any]) -> Row:
    texts = {name: text for name, text in cells.items() if name in ("values", "kind", "by", "validate", "why")}
    return Row(
        flag=cells["flag"].replace("-", "_"),
        of=tuple(cells["of"].split()),
        ours=tuple(cells.get("ours", "").split()),
        map={str(theirs): str(ours) for theirs, ours in cells.get("map", {}).items()},
        implies=cells.get("implies", {}),
        with_like=cells.get("like", False),
        **texts,
    )
