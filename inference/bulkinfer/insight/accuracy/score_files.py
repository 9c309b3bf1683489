"""The files of a scored job: score.json, classes.csv, confusion.csv, confusion.png."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bulkinfer.files.atomic import publishing
from bulkinfer.files.json_file import write_json
from bulkinfer.insight.accuracy.confusion_picture import draw_confusion
from bulkinfer.insight.accuracy.figures import Figures
from bulkinfer.insight.place import write_csv

NAMES = ("score.json", "classes.csv", "confusion.csv", "confusion.png")


def write_files(figures: Figures, folder: Path, facts: dict[str, Any]) -> None:
    """Write all figures into `folder`, each file complete or not at all. `facts` say which job they are of."""
    write_json(folder / "score.json", {**facts, **figures.as_json()})
    header = ("class", "name", "pictures", "right", "recall", "answers", "precision", "most_taken_for", "most_taken_for_name",
              "most_taken_for_count")  # fmt: skip
    name = figures.names.name
    write_csv(folder / "classes.csv", header, (
        (each.number, each.name, each.pictures, each.right, each.recall, each.answers, each.precision,
         *((each.taken_for[0], name(each.taken_for[0]), each.taken_for[1]) if each.taken_for else (None, None, None)))
        for each in figures.classes
    ))  # fmt: skip
    pairs = sorted(figures.confusion.items())
    write_csv(folder / "confusion.csv", ("class", "name", "answer", "answer_name", "count"), (
        (number, name(number), answer, name(answer), count) for (number, answer), count in pairs
    ))  # fmt: skip
    with publishing(folder / "confusion.png") as temporary:
        draw_confusion(figures.confusion, figures.names.name).save(temporary, "PNG")
