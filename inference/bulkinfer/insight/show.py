"""Chosen rows of a job, found part by part: no more than one part and the chosen rows are in memory."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.insight.class_columns import require_classes
from bulkinfer.results.answers import ANSWER_COLUMNS, class_texts, num_ranked, ranked, score_texts
from bulkinfer.results.reader import Results

_LONGEST_NAME = 32  # characters of a class name in a table; ImageNet gives some classes five names
_COLUMNS = ("key", "stage", "error", *ANSWER_COLUMNS)


@dataclass
class Choice:
    """Which rows are wanted; an empty word wants all. `names_seen` collects the names of best classes, for advice.

    `classes` are the numbers of the class called `class_name`, if the names of the network's classes are known.
    """

    class_name: str = ""
    classes: tuple[int, ...] = ()
    key: str = ""
    only_errors: bool = False
    only_ok: bool = False
    names_seen: set[str] = field(default_factory=set)

    def of(self, table: pa.Table) -> pa.Table:
        """The wanted rows of a table, which has classes if one is wanted."""
        if self.only_errors or self.only_ok:
            table = table.filter((pc.is_valid if self.only_errors else pc.is_null)(table["stage"]))
        if self.key:
            fits = re.compile(fnmatch.translate(self.key)).match
            table = table.filter(pa.array([fits(key) is not None for key in table["key"].to_pylist()], pa.bool_()))
        return self._of_class(table) if self.class_name else table

    def _of_class(self, table: pa.Table) -> pa.Table:
        if not num_ranked(table):
            return table.slice(0, 0)
        best = ranked(table, 0)
        if self.classes:
            return table.filter(pc.is_in(best.ids, value_set=pa.array(self.classes, pa.int32())))
        if best.names is not None:
            seen = [name for name in pc.unique(best.names).to_pylist() if name is not None]
            self.names_seen.update(seen)
            if wanted := [name for name in seen if self._is_named(name)]:
                return table.filter(pc.is_in(best.names, value_set=pa.array(wanted, pa.string())))
        number = int(self.class_name) if self.class_name.isascii() and self.class_name.isdigit() else -1
        return table.filter(pc.equal(best.ids, number))

    def _is_named(self, name: str) -> bool:
        """True for the whole name and for each of several: ImageNet calls a class `flatworm, platyhelminth`."""
        wanted, name = self.class_name.lower().strip(), name.lower()
        return wanted == name or wanted in map(str.strip, name.split(","))


def first_rows(results: Results, choice: Choice, count: int) -> pa.Table | None:
    """The first `count` wanted rows; None if no part is published. Raises what reading parts raises."""
    found, num_found = list[pa.Table](), 0
    for table in _tables(results, choice):
        found.append(table.slice(0, count - num_found))
        num_found += len(found[-1])
        if num_found == count:
            break
    return pa.concat_tables(found) if found else None


def surest_rows(results: Results, choice: Choice, count: int, *, least: bool) -> pa.Table | None:
    """The `count` wanted ok rows with the highest best score, or the lowest; of equal ones the first. NaN comes last.

    None if no part is published. Raises UsageError if the job saved no classes.
    """
    kept: pa.Table | None = None
    choice.only_ok = True
    require_classes(results)
    for table in _tables(results, choice):
        both = table if kept is None else pa.concat_tables([kept, table])
        if not num_ranked(both):
            kept = both.slice(0, 0)
            continue
        scores = ranked(both, 0).scores.to_numpy()
        kept = both.take(np.argsort(scores if least else -scores, kind="stable")[:count])
    return kept


def _tables(results: Results, choice: Choice) -> Iterator[pa.Table]:
    if choice.class_name:
        require_classes(results)
    source = results.with_errors() if choice.only_errors else results
    return map(choice.of, source.tables(_COLUMNS, skips_absent=True))


def as_cells(table: pa.Table, *, num_classes: int) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a table of rows: key, the best `num_classes` (1 or 2) with their scores, and what went wrong."""
    failures = [stage and f"error at {stage}: {error}" for stage, error in zip(*_lists(table, "stage", "error"), strict=True)]
    columns: dict[str, list[str]] = {"key": table["key"].to_pylist()}
    for rank, name in enumerate(("", " 2")[: min(num_classes, num_ranked(table))]):
        found = ranked(table, rank)
        columns |= {f"class{name}": [*map(_shortened, class_texts(found))], f"score{name}": score_texts(found)}
    if any(failures):  # in the place of the class, so that the table stays narrow
        classes = columns.get("class", [""] * len(table))
        columns["class"] = [failure or name for failure, name in zip(failures, classes, strict=True)]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def error_cells(table: pa.Table) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a table of error rows: key, stage, message."""
    names = ["key", "stage", "error"]
    return names, [list(row) for row in zip(*_lists(table, *names), strict=True)]


def _lists(table: pa.Table, *names: str) -> list[list[str]]:
    return [table[name].to_pylist() for name in names]


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
