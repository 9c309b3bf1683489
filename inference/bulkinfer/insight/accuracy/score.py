"""Scores a job: reads its rows part by part, finds the label of each, and adds up how often the network was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError
from bulkinfer.insight.accuracy.figures import Figures, figures_of, name_first
from bulkinfer.insight.accuracy.labels import Label, Labels
from bulkinfer.insight.accuracy.tally import Tally, padded
from bulkinfer.insight.class_columns import matrix, require_classes
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.results.reader import Results
from bulkinfer.types import printable

_COLUMNS = ("key", "key_bytes", "stage", "class_ids", "scores")


@dataclass
class _Rows:
    """What became of the rows that are not scored: those with an error, without a label, and with a label that is no class.

    `classes` are those of each label so far.
    """

    num_errors: int = 0
    num_unlabelled: int = 0
    unmatched: Counter[Label] = field(default_factory=Counter)
    classes: dict[Label, tuple[int, ...]] = field(default_factory=dict)


def score(results: Results, labels: Labels, names: ClassNames) -> Figures:
    """The figures of a job. Memory: one part, the labels, and a count for each pair of classes.

    A row is scored if it is ok and its label is a class of the network. Error rows with such a label are counted apart. Raises
    UsageError if the rows keep no classes or none can be scored, and the RunErrors of Results.tables.
    """
    require_classes(results)
    tally, rows = Tally.of(int(results.job["identity"]["top_k"])), _Rows()
    for table in results.tables((*_COLUMNS, *labels.columns)):
        known = _classes_of_rows(table, labels, names, rows)
        is_ok = pc.is_null(table["stage"]).to_numpy(zero_copy_only=False)
        has_class = np.fromiter(map(bool, known), bool, len(known))
        rows.num_errors += int((has_class & ~is_ok).sum())
        if len(scored := np.flatnonzero(has_class & is_ok)):
            chosen = table.take(scored)
            scores_NK = matrix(chosen["scores"])
            tally.add(matrix(chosen["class_ids"]), scores_NK[:, 0], padded([known[row] for row in scored]))
    if not tally.num_scored:
        reasons = "; ".join(_reasons(rows, labels, names))
        raise UsageError(f"none of {len(results):,} rows can be scored: {reasons}")
    source = labels.source + _as_numbers(labels, rows, names)
    return figures_of(tally, names, num_rows=len(results), num_records=int(results.job["num_records"]),
                      num_errors=rows.num_errors, num_unlabelled=rows.num_unlabelled, unmatched=_shown(rows.unmatched, names),
                      labels_from=source, num_without_row=labels.without_row())  # fmt: skip


def _classes_of_rows(table: pa.Table, labels: Labels, names: ClassNames, rows: _Rows) -> list[tuple[int, ...]]:
    """The right classes of each row; () if it has no label, or one that is no class, which is counted."""
    found = labels.of(table)
    rows.num_unlabelled += sum(not label for label in found)
    known = []
    for label in found:
        if (classes := rows.classes.get(label)) is None:
            classes = rows.classes[label] = _classes(label, names)
        if label and not classes:
            rows.unmatched[label] += 1
        known.append(classes)
    return known


def _classes(label: Label, names: ClassNames) -> tuple[int, ...]:
    """The classes that count as right for a label: those of all its texts that fit exactly one."""
    fits = (names.find(text) for text in label)
    return tuple(sorted({found[0] for found in fits if len(found) == 1}))


def _as_numbers(labels: Labels, rows: _Rows, names: ClassNames) -> str:
    """Says, with an example, that all labels that fit a class are read as its number: they may be numbers of something else."""
    fits = {text: classes[0] for label, classes in rows.classes.items() if classes for text in label}
    is_by_number = all(text.isascii() and text.isdigit() and text != names.name(number) for text, number in fits.items())
    if labels.columns or not names or not is_by_number:  # labels in the rows are numbers
        return ""
    number = min(fits.values())
    return f", read as numbers of classes: {number} is {names.name(number)}"


def _shown(unmatched: Counter[Label], names: ClassNames) -> Counter[str]:
    """The labels that are no class, for messages."""
    shown = Counter[str]()
    for label, count in unmatched.items():
        text = ", ".join(printable(each.encode("utf-8", "surrogateescape")) for each in label)
        several = next((found for each in label if len(found := names.find(each)) > 1), ())
        shown[f"{text} (it could be any of the classes {', '.join(map(str, several))})" if several else text] += count
    return shown


def _reasons(rows: _Rows, labels: Labels, names: ClassNames) -> Iterator[str]:
    """Why no row was scored."""
    if rows.num_unlabelled:
        yield f"{rows.num_unlabelled:,} have no label in {labels.source}"
    if rows.unmatched:
        first = name_first(_shown(rows.unmatched, names))
        yield f"the labels of {rows.unmatched.total():,} are no class of the network ({first})"
    if rows.unmatched and names.why_unknown:
        yield f"{names.why_unknown}, so that only class numbers are known: give --model_path, or labels that are numbers"
    if rows.num_errors:
        yield f"{rows.num_errors:,} are error rows"
