"""The figures of a scored job, computed from what was counted, and as lines for the terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bulkinfer.host.number_text import percent_text
from bulkinfer.insight.accuracy.tally import NUM_BINS, Tally
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.records.sources.folder import counted

WORST = 10  # classes in the terminal's table
_NAMED = 3  # labels without a class that are named
_TOP = 5


@dataclass(frozen=True)
class ClassFigures:
    """One class: how many pictures are of it, how many of them were answered right, and how many answers name it.

    `taken_for` is the wrong answer that its pictures got most often, and how often; None if there was none.
    """

    number: int
    name: str
    pictures: int
    right: int
    answers: int
    taken_for: tuple[int, int] | None

    @property
    def recall(self) -> float | None:
        """The share of its pictures that were answered right; None without pictures."""
        return self.right / self.pictures if self.pictures else None

    @property
    def precision(self) -> float | None:
        """The share of the answers with this class that were right; None without such answers."""
        return self.right / self.answers if self.answers else None


@dataclass(frozen=True)
class Figures:
    """Everything that is known of a scored job. Shares are from 0 to 1.

    `hits` are the rows with a right class among their first 1, 2, ... classes. `ece` is the expected calibration error over
    equal bins of the best score; None if the scores are no probabilities. `bins` have (rows, mean score, share right).
    """

    labels_from: str
    num_rows: int
    num_records: int
    num_scored: int
    num_errors: int
    num_unlabelled: int
    num_several: int
    num_without_row: int
    unmatched: Counter[str]
    hits: tuple[int, ...]
    classes: tuple[ClassFigures, ...]
    confusion: Counter[tuple[int, int]]
    ece: float | None
    bins: tuple[tuple[int, float, float], ...]
    num_without_score: int
    names: ClassNames

    @property
    def top1(self) -> float:
        """The share of the scored rows whose best class is right."""
        return self.hits[0] / self.num_scored

    @property
    def top1_with_errors(self) -> float:
        """The same, with every error row that has a label counted as wrong."""
        return self.hits[0] / (self.num_scored + self.num_errors)

    @property
    def mean_per_class(self) -> float | None:
        """The mean recall of the classes that have pictures; None if no picture has a single class."""
        recalls = [each.recall for each in self.classes if each.recall is not None]
        return sum(recalls) / len(recalls) if recalls else None

    def worst(self, count: int) -> list[ClassFigures]:
        """The `count` classes with the smallest share of right answers; of equal ones those with the most pictures first."""
        with_pictures = [each for each in self.classes if each.pictures]
        return sorted(with_pictures, key=lambda each: (each.right / each.pictures, -each.pictures, each.number))[:count]

    def as_json(self) -> dict[str, Any]:
        """The content of score.json, but for the tables, which have files of their own."""
        top = {str(k): {"right": hits, "share": hits / self.num_scored} for k, hits in enumerate(self.hits, 1)}
        return {
            "labels": self.labels_from,
            "rows": {
                "in_job": self.num_rows, "of_records": self.num_records, "scored": self.num_scored,
                "errors": self.num_errors, "unlabelled": self.num_unlabelled, "unmatched": self.unmatched.total(),
            },
            "names_without_row": self.num_without_row,
            "unmatched_labels": dict(self.unmatched.most_common()),
            "top": top,
            "top1_with_errors_as_wrong": self.top1_with_errors,
            "mean_per_class": self.mean_per_class,
            "rows_with_several_classes": self.num_several,
            "calibration": {
                "ece": self.ece, "num_bins": NUM_BINS, "rows_without_score": self.num_without_score,
                "bins": [{"rows": rows, "mean_score": mean, "share_right": right} for rows, mean, right in self.bins],
            },
        }  # fmt: skip


def figures_of(tally: Tally, names: ClassNames, **counts: Any) -> Figures:
    """The figures of what was counted; `counts` are the other fields of Figures."""
    assert tally.num_scored, "no row was scored"
    ece, bins = _calibration(tally)
    hits = tuple(int(count) for count in np.cumsum(tally.first_hits_K))
    return Figures(num_scored=tally.num_scored, num_several=tally.num_several, hits=hits,
                   classes=tuple(_classes(tally.confusion, names)), confusion=tally.confusion, ece=ece, bins=bins,
                   num_without_score=tally.num_without_score, names=names, **counts)  # fmt: skip


def _calibration(tally: Tally) -> tuple[float | None, tuple[tuple[int, float, float], ...]]:
    """Expected calibration error: the mean over rows of |share right - mean score| of the row's bin; and the bins."""
    total = int(tally.bin_rows.sum())
    if not total or not tally.are_probabilities:
        return None, ()
    rows = np.maximum(tally.bin_rows, 1)
    means, shares = tally.bin_scores / rows, tally.bin_right / rows
    ece = float((tally.bin_rows * np.abs(shares - means)).sum() / total)
    return ece, tuple((int(n), float(m), float(s)) for n, m, s in zip(tally.bin_rows, means, shares, strict=True))


def _classes(confusion: Counter[tuple[int, int]], names: ClassNames) -> Iterator[ClassFigures]:
    pictures, answers = Counter[int](), Counter[int]()
    wrong: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for (number, answer), count in sorted(confusion.items()):
        pictures[number] += count
        answers[answer] += count
        if answer != number:
            wrong[number][answer] += count
    for number in sorted(pictures | answers):
        most = wrong[number].most_common(1)
        yield ClassFigures(number, names.name(number), pictures[number], confusion[number, number], answers[number],
                           most[0] if most else None)  # fmt: skip


def lines(figures: Figures) -> Iterator[str]:
    """The figures for the terminal."""
    yield from _count_lines(figures)
    scored = figures.num_scored
    with_errors = ""
    if figures.num_errors:
        wrong = counted(figures.num_errors, "error row", "counts", "count")
        with_errors = f"; {percent_text(figures.top1_with_errors, 2)} if the {wrong} as wrong"
    yield f"top-1: {percent_text(figures.top1, 2)} ({figures.hits[0]:,} of {scored:,}){with_errors}"
    if (kept := len(figures.hits)) < _TOP:
        yield f"top-5: not known, since the rows keep {kept} of the classes (--top_k {kept})"
    if (k := min(kept, _TOP)) > 1:
        yield f"top-{k}: {percent_text(figures.hits[k - 1] / scored, 2)} ({figures.hits[k - 1]:,} of {scored:,})"
    if (mean := figures.mean_per_class) is not None:
        yield f"mean per class: {percent_text(mean, 2)}"
    if figures.num_several:
        yield (
            f"{figures.num_several:,} rows have several classes, any of which counts as right; the figures of single classes "
            "leave these rows out"
        )
    if figures.ece is None:
        yield "calibration: not known, since the scores of this network are no probabilities"
    else:
        yield f"calibration error (ECE, {NUM_BINS} bins): {figures.ece:.4f}"
    yield from _worst_lines(figures)


def _count_lines(figures: Figures) -> Iterator[str]:
    yield f"labels: {figures.labels_from}"
    unmatched = figures.unmatched
    counts = [f"{figures.num_scored:,} of {figures.num_rows:,} rows"]
    counts += [f"{figures.num_unlabelled:,} without a label"] if figures.num_unlabelled else []
    counts += [f"{unmatched.total():,} with a label that is no class of the network"] if unmatched else []
    counts += [counted(figures.num_errors, "error row")] if figures.num_errors else []
    yield f"scored: {'; '.join(counts)}"
    if unmatched:
        yield f"labels that are no class: {name_first(unmatched)}"
        if figures.names.why_unknown:
            yield f"only class numbers are known: {figures.names.why_unknown}"
    if figures.num_without_row:
        yield f"{figures.num_without_row:,} names of the labels have no row"
    if figures.num_rows < figures.num_records:
        yield f"the job is not complete: {figures.num_rows:,} of {figures.num_records:,} pictures have a row"


def name_first(unmatched: Counter[str]) -> str:
    """The labels that are no class; the most frequent ones are named."""
    named = ", ".join(label for label, _ in unmatched.most_common(_NAMED))
    return named + (f" and {len(unmatched) - _NAMED:,} more" if len(unmatched) > _NAMED else "")


def _worst_lines(figures: Figures) -> Iterator[str]:
    num_wrong = sum(each.right < each.pictures for each in figures.classes)
    if not num_wrong:
        return
    yield f"worst classes{'' if num_wrong <= WORST else f' ({WORST} of {num_wrong:,} with a wrong answer)'}:"
    yield "  right  pictures  class, and what it was most often taken for"
    for each in figures.worst(min(WORST, num_wrong)):  # those without a wrong answer come last
        assert each.taken_for is not None, "a class with a wrong answer"
        answer, count = each.taken_for
        taken = f"{class_text(answer, figures.names.name(answer))} ({count:,})"
        yield f"  {each.right:5,}  {each.pictures:8,}  {class_text(each.number, each.name)} -> {taken}"


def class_text(number: int, name: str) -> str:
    """A class for messages: its number and the first of its names."""
    return f"{number} {name.partition(',')[0]}".rstrip()
