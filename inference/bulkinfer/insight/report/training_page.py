"""The page about a training run: its plan, the curves of training.csv and validation.csv, and the newest confusion matrix."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.files.guarded import TEXT_BYTES, read_text
from bulkinfer.files.json_file import read_json
from bulkinfer.files.latest_link import LATEST
from bulkinfer.files.user_path import real_path
from bulkinfer.insight.accuracy.confusion_picture import chosen_classes
from bulkinfer.insight.report.charts import Chart, line_chart
from bulkinfer.insight.report.page import render
from bulkinfer.insight.report.training_files import ARGUMENTS, TRAINING, VALIDATION
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.runs import EMA, RAW, read_table
from bulkinfer.types import printable_path

_IGNORED = ("config", "resume", "dry_run", "data_dir", "log_path", "download")  # of the options that the page lists
_OF_AVERAGE = f"-{EMA}"  # at the end of the name of its confusion matrix

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Confusion:
    """The validation pictures of a checkpoint: a row for each class, a column for each answer.

    `shares` are those of a row's pictures. Of `num_classes` only those in `names` are shown.
    """

    checkpoint: str
    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]
    num_classes: int


def training_page(folder: Path) -> str:
    """The HTML page of a training run. Raises RunError if one of its tables is damaged."""
    arguments = _arguments(folder)
    training = _numbers(folder / TRAINING)
    raw, average = (_numbers(folder / VALIDATION, weights) for weights in (RAW, EMA))
    validation, curves = average or raw, {"training": training, "validation": raw, "validation (ema)": average}
    last = training[-1] if training else {}
    best = max(validation, key=lambda row: row["accuracy"], default=None)
    config = arguments.get("config", {})
    return render(
        "training.html",
        folder=printable_path(real_path(folder) if folder.name == LATEST else folder),
        title=real_path(folder).name,
        plan=arguments.get("plan", {}),
        versions=arguments.get("versions", {}),
        options=_changed_options(config),
        num_starts=len(_starts(folder)),
        last=last,
        has_accuracy=math.isfinite(last.get("accuracy", math.nan)),  # --nometrics measures none
        best=best,
        validated=validation[-1] if validation else None,
        loss=_chart("Loss", "loss", curves),
        accuracy=_chart("Accuracy", "accuracy", curves, scale=100.0, unit=" %"),
        learning_rate=_chart("Learning rate", "learning_rate", {"training": training}),
        speed=_chart("Training speed", "images_per_sec", {"training": training}, y_name="images/sec"),
        confusion=_confusion(folder),
    )


def _starts(folder: Path) -> list[Path]:
    """The arguments of each start of the run, the last one at the end."""
    return [folder / ARGUMENTS, *sorted(folder.glob("arguments-*.json"), key=lambda path: (len(path.name), path.name))]


def _arguments(folder: Path) -> dict[str, Any]:
    """What the newest start of the run was given. Raises RunError if the file is damaged."""
    return read_json(_starts(folder)[-1])


def _numbers(path: Path, weights: str = RAW) -> list[dict[str, float]]:
    """The rows of a table of the run about these weights (raw or ema), as numbers. Raises RunError for what is no number."""
    rows = [row for row in read_table(path) if (row.get("weights") or RAW) == weights]
    try:
        return [{column: float(text) for column, text in row.items() if column not in ("name", "weights")} for row in rows]
    except ValueError:
        raise RunError(f"{printable_path(path)} is damaged (it holds a value that is no number): repair or remove it") from None


def _changed_options(config: dict[str, Any]) -> list[tuple[str, str]]:
    """The options of a run that are not the defaults, as they are typed."""
    defaults = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(TrainConfig()).items()}
    changed = {name: value for name, value in config.items() if name not in _IGNORED and value != defaults.get(name)}
    return [
        (f"--{name}", " ".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in changed.items()
    ]


def _chart(
    title: str,
    column: str,
    tables: dict[str, list[dict[str, float]]],
    *,
    scale: float = 1.0,
    unit: str = "",
    y_name: str = "",
) -> Chart | None:
    """A column of some tables over the epochs; None if none has a finite value."""
    series = [(name, _points(rows, column, scale)) for name, rows in tables.items()]
    series = [(name, points) for name, points in series if points]
    if not series:
        return None
    ends = [f"{name} from {points[0][1]:.4g}{unit} to {points[-1][1]:.4g}{unit}" for name, points in series]
    text = f"{title} over {series[0][1][-1][0]:.4g} epochs: {'; '.join(ends)}."
    return line_chart(text, series, x_name="epoch", y_name=y_name or title.lower(), unit=unit)


def _points(rows: list[dict[str, float]], column: str, scale: float) -> Points:
    points = [(row["epoch"], row.get(column, math.nan) * scale) for row in rows]
    return [point for point in points if all(map(math.isfinite, point))]


def _confusion(folder: Path) -> Confusion | None:
    """The newest confusion matrix that bulkinfer validate has written; None if there is none."""
    paths = sorted(folder.glob("confusion-step-*.csv"), key=lambda path: (path.stem.removesuffix(_OF_AVERAGE), path.stem))
    if not paths:
        return None
    path = paths[-1]
    try:
        matrix = [[int(cell) for cell in line.split(",")] for line in read_text(path, TEXT_BYTES).splitlines() if line]
    except (ValueError, BulkinferError):
        raise RunError(f"{printable_path(path)} is damaged: remove it, and run bulkinfer validate again") from None
    counts = Counter({(row, column): n for row, line in enumerate(matrix) for column, n in enumerate(line) if n})
    classes, _ = chosen_classes(counts)
    shown = tuple(tuple(counts[row, column] for column in classes) for row in classes)
    totals = [max(1, sum(matrix[row])) for row in classes]
    shares = tuple(tuple(n / total for n in line) for line, total in zip(shown, totals, strict=True))
    checkpoint = path.stem.removeprefix("confusion-")
    names = _class_names(folder, checkpoint.removesuffix(_OF_AVERAGE), len(matrix))
    return Confusion(checkpoint, tuple(names[number] for number in classes), shown, shares, len(matrix))


def _class_names(folder: Path, checkpoint: str, num_classes: int) -> list[str]:
    """The names of the classes by the record of a checkpoint; their numbers if it was removed."""
    path = folder / "checkpoints" / checkpoint / "state.json"
    names = read_json(path).get("class_names", []) if path.exists() else []
    return list(map(str, names)) if len(names) == num_classes else [str(number) for number in range(num_classes)]
