"""A picture of a run: accuracy in training and validation, and the learning rate, over the epochs. Needs matplotlib.

python tools/bench/curve.py logs/RUN FILE.png
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image


def columns(path: Path, *names: str) -> list[list[float]]:
    """Columns of a CSV file of a run."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [[float(row[name]) for row in rows] for name in names]


def main() -> None:
    """Draw."""
    folder, target = map(Path, sys.argv[1:])
    epochs, accuracy, rate = columns(folder / "training.csv", "epoch", "accuracy", "learning_rate")
    valid_epochs, valid_accuracy = columns(folder / "validation.csv", "epoch", "accuracy")
    figure, axes = plt.subplots(figsize=(6.4, 3.6), dpi=80)
    axes.plot(epochs, [100 * value for value in accuracy], linewidth=0.7, label="training, augmented")
    axes.plot(valid_epochs, [100 * value for value in valid_accuracy], "o-", markersize=3, label="validation")
    axes.set(xlabel="epoch", ylabel="accuracy, %", ylim=(80, 100))
    axes.grid(alpha=0.3)
    rates = axes.twinx()
    rates.plot(epochs, rate, color="grey", linestyle=":", linewidth=1, label="learning rate (right)")
    rates.set(ylim=(0, None))
    handles = axes.get_legend_handles_labels()[0] + rates.get_legend_handles_labels()[0]
    axes.legend(handles=handles, loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(target, metadata={"Software": None})
    Image.open(target).convert("RGB").quantize(48).save(target, optimize=True)  # a few kilobytes


if __name__ == "__main__":
    main()
