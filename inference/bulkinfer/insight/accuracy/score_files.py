"""The files of a scored job: score.json, classes.csv, confusion.csv, confusion.png."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bulkinfer.files.atomic import publishing
from bulkinfer.files.json_file import write_json
from bulkinfer.insight.accuracy.confusion_picture import draw_confusion
from bulkinfer.insight.accuracy.figures import Figures
from bulkinfer.insight.output_files import csv_file

FOLDER = "score"  # in the log folder of the job
NAMES = ("score.json", "classes.csv", "confusion.csv", "confusion.png")
_CLASSES = ("class", "name", "pictures", "right", "recall", "answers", "precision", "most_taken_for", "most_taken_for_name",
            "most_taken_for_count")  # fmt: skip
_CONFUSION = ("class", "name", "answer", "answer_name", "count")


def write_files(figures: Figures, folder: Path, facts: dict[str, Any]) -> None:
    """Write all figures into `folder`, each file complete or not at all. `facts` say which job they are of."""
    write_json(folder / "score.json", {**facts, **figures.as_json()})
    name = figures.names.name
    with csv_file(folder / "classes.csv", _CLASSES) as table:
        for each in figures.classes:
            answer, count = each.taken_for or (None, None)
            taken_for = (answer, None if answer is None else name(answer), count)
            table.writerow((each.number, each.name, each.pictures, each.right, each.recall, each.answers, each.precision,
                            *taken_for))  # fmt: skip
    with csv_file(folder / "confusion.csv", _CONFUSION) as table:
        for (number, answer), count in sorted(figures.confusion.items()):
            table.writerow((number, name(number), answer, name(answer), count))
    with publishing(folder / "confusion.png") as temporary:
        draw_confusion(figures.confusion, figures.names.name).save(temporary, "PNG")
