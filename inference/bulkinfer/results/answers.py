"""The classes of rows, best first, as columns of their own; and as text for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

ANSWER_COLUMNS = ("class_ids", "scores", "class_names")  # of the rows; a job may lack some or all of them


class Ranked(NamedTuple):
    """The class at one rank of every row: its id, score and name, null in error rows. `names` is None without class names."""

    ids: Any
    scores: Any
    names: Any


def num_ranked(table: pa.Table) -> int:
    """How many classes each ok row of `table` holds; 0 if there are none, or no ok row."""
    if "class_ids" not in table.column_names or "scores" not in table.column_names:
        return 0
    return int(pc.min(pc.list_value_length(table["class_ids"])).as_py() or 0)


def ranked(table: pa.Table, rank: int) -> Ranked:
    """The class at `rank` (0 is the best, below `num_ranked(table)`) of every row."""
    names = pc.list_element(table["class_names"], rank) if "class_names" in table.column_names else None
    return Ranked(pc.list_element(table["class_ids"], rank), pc.list_element(table["scores"], rank), names)


def class_texts(found: Ranked) -> list[str]:
    """Each class by its name, or as in `class 17` without names; empty in error rows."""
    names: Iterable[str | None] = [None] * len(found.ids) if found.names is None else found.names.to_pylist()
    return [
        name if name is not None else "" if number is None else f"class {number}"
        for name, number in zip(names, found.ids.to_pylist(), strict=True)
    ]


def score_texts(found: Ranked) -> list[str]:
    """Each score with three digits; empty in error rows."""
    return ["" if score is None else f"{score:.3f}" for score in found.scores.to_pylist()]
