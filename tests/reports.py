"""Jobs and runs to report on, made by hand: no network runs, and every number on the page can be computed again."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.files.json_file import write_json
from bulkinfer.results.job_file import JobFile, json_sha256
from bulkinfer.results.parquet_parts import write_part
from bulkinfer.results.rows import StepRows, Task
from bulkinfer.types import Facts, Record, Step
from PIL import Image, ImageDraw

LABELS = ("circle, disc", "square", "triangle", "star")
SHAPES = ("circle", "square", "triangle", "star")
COLOURS = ("#d1495b", "#00798c", "#edae49", "#30638e", "#6a4c93", "#3a7d44")

# Names that attack a page. The first one has a folder in it, since `/` is in no name of a file.
HOSTILE = (
    b"<script>alert(1)</script>.png",
    b'"><img src=x onerror=alert(2)>.png',
    "rtl-\u202egnp.exe.png".encode(),
    b"line\nbreak.png",
    b"{{ 7*7 }}{% raw %}.png",
    b"caf\xe9 'quoted'.png",
)


@dataclass
class Row:
    """One row to write: its key, its classes with scores (best first) or its error, label and embedding."""

    key: bytes
    classes: tuple[int, ...] = (0, 1)
    scores: tuple[float, ...] = (0.9, 0.1)
    error: tuple[str, str] | None = None
    label: int | None = None
    embedding: tuple[float, ...] = field(default=())


def write_job(home: Path, rows: list[Row], *, rows_per_part: int = 7, data_dir: Path | None = None, more: int = 0) -> Path:
    """A job with these rows in the folder of logs `home`/logs; returns its log folder. `more` pictures have no row yet."""
    size, features = len(rows[0].classes), len(rows[0].embedding)
    columns = {"embedding": (features,)} if features else {}
    task = Task(size, frozenset({"topk", *columns}), True, len(LABELS), LABELS, "logits", columns)
    identity = {
        "model_name": "shapes", "batch_size": 6, "top_k": size, "save": sorted(task.save), "recipe": {"orientation": "exif"},
        "outputs": {"logits": "logits", "embedding": "embedding"}, "labels_sha256": json_sha256(LABELS),
        "graph_sha256": "ab" * 32, "max_pixels": 10_000_000, "decode": "exact",
    }  # fmt: skip
    fingerprint = json_sha256(identity)
    output = home / f"logs/shapes-{fingerprint[:8]}/results"
    output.mkdir(parents=True)
    parts = {}
    for start in range(0, len(rows), rows_per_part):
        step = Step(0, start, min(start + rows_per_part, len(rows)))
        part = write_part(output, _step_rows(step, task, rows), len(step), {"fingerprint": fingerprint})
        parts[part.name] = part.as_json()
    total = len(rows) + more
    content = {
        "fingerprint": fingerprint, "identity": identity, "config": {"data_dir": str(data_dir or home / "photos")},
        "resolved": {"provider": "cpu", "devices": ["the processor"], "precision": "fp32", "precision_reason": "asked for"},
        "versions": {"bulkinfer": "0.1.0"}, "source": "drawn shapes", "num_records": total, "complete": not more,
        "weights": {"source": "shapes.pth", "sha256": "cd" * 32, "origin": "made by hand"},
        "partitions": {"0": {"num_records": total, "keys_sha256": "", "manifest_sha256": ""}}, "parts": parts,
    }  # fmt: skip
    JobFile(content).write(output)
    write_json(output.parent / "run.json", {"output": str(output)})
    return output.parent


def _step_rows(step: Step, task: Task, rows: list[Row]) -> StepRows:
    found = StepRows(step, task, len(step))
    here = rows[step.start : step.end]
    found.records = [Record(step.start + i, row.key, b"/" + row.key, label=row.label) for i, row in enumerate(here)]
    found.facts = [None if row.error else Facts("PNG", 1, 96, 96, (), 1000) for row in here]
    found.errors = {i: row.error for i, row in enumerate(here) if row.error}
    assert found.class_ids_SK is not None
    assert found.scores_SK is not None
    found.class_ids_SK[:] = [row.classes for row in here]
    found.scores_SK[:] = [row.scores for row in here]
    for name in task.columns:
        found.saved[name][:] = [row.embedding for row in here]
    return found


def write_logs(log_dir: Path, steps: list[tuple[float, int, float]], *, summary: dict[str, Any] | None = None) -> None:
    """worker-0.jsonl with steps (time, pictures, seconds), and summary.json."""
    events = [{"time": end, "kind": "StepDone", "count": n, "total_s": s, "warm_up": 0} for end, n, s in steps]
    (log_dir / "worker-0.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if summary is not None:
        write_json(log_dir / "summary.json", {"output": str(log_dir / "results"), **summary})


def draw_shape(shape: str, colour: str, side: int = 96) -> Image.Image:
    """A picture of one filled shape on a pale ground."""
    image = Image.new("RGB", (side, side), "#f4f1ea")
    draw, edge = ImageDraw.Draw(image), side // 6
    if shape == "circle":
        draw.ellipse((edge, edge, side - edge, side - edge), colour)
    elif shape == "square":
        draw.rectangle((edge, edge, side - edge, side - edge), colour)
    elif shape == "triangle":
        draw.polygon([(side / 2, edge), (side - edge, side - edge), (edge, side - edge)], colour)
    else:
        turns = [(np.pi * (i / 5 - 0.5), side / 2.6 if i % 2 == 0 else side / 6) for i in range(10)]
        draw.polygon([(side / 2 + r * np.cos(a), side / 2 + r * np.sin(a)) for a, r in turns], colour)
    return image


def write_shapes(folder: Path, count: int) -> list[bytes]:
    """Pictures of shapes, the first ones under hostile names; returns their keys. Shape i is SHAPES[i % 4]."""
    keys = []
    for i in range(count):
        key = HOSTILE[i] if i < len(HOSTILE) else b"%s/%04d.png" % (SHAPES[i % 4].encode(), i)
        path = folder / os.fsdecode(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_shape(SHAPES[i % 4], COLOURS[i % len(COLOURS)]).save(path)
        keys.append(key)
    return keys


def write_run(folder: Path, epochs: int = 6) -> Path:
    """The folder of a training run: tables, arguments, and a confusion matrix of three classes; returns it."""
    folder.mkdir(parents=True)
    training, validation = (
        ["step,epoch,learning_rate,loss,accuracy,images_per_sec,loss_scale,memory_mb,total_s"],
        ["name,step,epoch,accuracy,top5,loss,count,images_per_sec,seconds"],
    )
    for i in range(1, epochs + 1):
        training.append(f"{10 * i},{i},{0.1 * (1 - i / epochs):g},{2 / i:g},{1 - 0.5 / i:g},{100 + i},1,500,{3 * i}")
        validation.append(f"step-{10 * i:08d},{10 * i},{i},{0.9 - 0.3 / i:g},1,{2.5 / i:g},30,200,0.1")
    (folder / "training.csv").write_text("\n".join(training) + "\n")
    (folder / "validation.csv").write_text("\n".join(validation) + "\n")
    name = f"step-{10 * epochs:08d}"
    (folder / f"confusion-{name}.csv").write_text("8,1,1\n0,10,0\n2,0,8\n")
    (folder / "checkpoints" / name).mkdir(parents=True)
    write_json(folder / "checkpoints" / name / "state.json", {"class_names": ["circle", "<b>square</b>", "star"]})
    arguments = {"config": {"model": "shapes", "lr": 0.1, "momentum": 0.9}, "plan": {"network": "shapes, 12 parameters"},
                 "from_step": 0, "versions": {"bulkinfer": "0.1.0"}}  # fmt: skip
    write_json(folder / "arguments.json", arguments)
    return folder


class Page(HTMLParser):
    """The texts of a page: all of it, and the tiles and tables by their headings. Attributes that load something are noted."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style":
            self.words.append(data)

    def addresses(self) -> list[str]:
        """All that the page could load or lead to."""
        return [str(value) for _, found in self.tags for name, value in found.items() if name in ("src", "href", "action")]
