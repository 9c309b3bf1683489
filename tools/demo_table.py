"""Print what a run of tools/demo found: a table of pictures and classes, the count right, throughput, where the rows are.

Usage: demo_table.py LOG_FOLDER MODEL_FOLDER (a job's log folder with summary.json; the model folder with card.json).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

NAMED_BY_CLASS = re.compile(r"foolbox/imagenet_\d+_(\d+)\.jpg")  # the class index is in the name of foolbox's photographs
CLASSES_SHOWN = 3


def classes_text(row: dict[str, Any]) -> str:
    """The best classes of a row with their scores; the error of an error row."""
    if row["status"] != "ok":
        return f"error at {row['stage']}: {row['error']}"
    best = list(zip(row["class_names"], row["scores"], strict=True))[:CLASSES_SHOWN]
    return ", ".join(f"{name} {score:.2f}" for name, score in best)


def verdict(row: dict[str, Any], labels: list[str]) -> str:
    """right or wrong for a photograph with a known class, else nothing."""
    match = NAMED_BY_CLASS.fullmatch(row["key"])
    if match is None:
        return ""
    label = int(match[1])
    return "right" if row["status"] == "ok" and row["class_ids"][0] == label else f"wrong: {labels[label]}"


def main(log_dir: Path, model_folder: Path) -> None:
    """Print everything."""
    summary = json.loads((log_dir / "summary.json").read_text())
    labels = json.loads((model_folder / "card.json").read_text())["labels"]
    rows = sorted(pq.read_table(summary["output"]).to_pylist(), key=lambda row: row["key"])
    width = max(len(row["key"]) for row in rows)
    print(f"{'picture':<{width}}  {'known class':<24}  best classes and scores")
    verdicts = [verdict(row, labels) for row in rows]
    for row, word in zip(rows, verdicts, strict=True):
        print(f"{row['key']:<{width}}  {word:<24}  {classes_text(row)}")
    known = [word for word in verdicts if word]
    print(f"\n{known.count('right')} of the {len(known)} photographs with a known class are right")
    print("\nthroughput, by worker and step (the newest step of each):")
    for log in sorted(log_dir.glob("worker-*.log")):
        steps = [line for line in log.read_text().splitlines() if line.startswith("Total ")]
        print(f"  {log.stem}: {steps[-1] if steps else 'had no step to do'}")
    output = summary["output"]
    print(f"\nthe rows: {output}/*.parquet")
    print(f"  pandas: pandas.read_parquet({output!r})")
    print(f"  DuckDB: SELECT key, class_names[1], scores[1] FROM '{output}/*.parquet' ORDER BY key")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
