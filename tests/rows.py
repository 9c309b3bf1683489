"""Steps, batches and rows for tests, made without loader or network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from bulkinfer.results.rows import StepRows, Task
from bulkinfer.types import Batch, Facts, Record, Step

Array = np.ndarray[Any, Any]


def task(
    *save: str,
    top_k: int = 2,
    num_classes: int = 4,
    num_features: int = 3,
    labels: tuple[str, ...] = (),
    are_logits: bool = True,
) -> Task:
    """A task of a small network; without `save` it keeps the best classes."""
    shapes = {"logits": (num_classes,), "embedding": (num_features,)}
    columns = {name: shape for name, shape in shapes.items() if name in save}
    return Task(top_k, frozenset(save or ("topk",)), are_logits, num_classes, labels, "logits", columns)


def record(number: int, key: bytes | None = None, **facts: Any) -> Record:
    """A record whose key tells its number."""
    key = b"%06d.jpg" % number if key is None else key
    return Record(number, key, b"/pictures/" + key, **facts)


def batch_of(
    records: list[Record],
    *,
    offset: int = 0,
    size: int = 4,
    errors: Mapping[int, tuple[str, str]] | None = None,
    rows: Any = None,
) -> Batch:
    """A filled batch; slots of `errors` (stage and message) have no facts."""
    errors = dict(errors or {})
    facts = [None if i in errors else Facts("JPEG", 1, 640, 480) for i in range(len(records))]
    padding: list[Any] = [None] * (size - len(records))
    return Batch(np.zeros((size, 2, 2, 3), np.uint8), records + padding, facts + padding, errors, rows, offset, len(records))


def logits_of(numbers: list[int], size: int = 4, num_classes: int = 4) -> Array:
    """Logits that tell the record: record n is of class n % num_classes, with n in the value; padding is garbage."""
    values = np.full((size, num_classes), 1e9, np.float32)
    for row, number in enumerate(numbers):
        values[row] = -1.0
        values[row, number % num_classes] = 1 + number / 100
    return values


def filled_rows(step: Step, task: Task, *, size: int = 4, errors: Mapping[int, tuple[str, str]] | None = None) -> StepRows:
    """All rows of a step, in batches of `size`; `errors` by position in the step."""
    rows = StepRows(step, task, size)
    for offset in range(0, len(step), size):
        count = min(size, len(step) - offset)
        numbers = [step.start + offset + i for i in range(count)]
        here = {i: error for i in range(count) if (error := (errors or {}).get(offset + i))}
        logits = logits_of(numbers, size, task.num_classes)
        outputs = {"logits": logits, "embedding": np.repeat(logits[:, :1], *task.columns.get("embedding", (3,)), axis=1)}
        rows.fill(
            batch_of([record(n) for n in numbers], offset=offset, size=size, errors=here),
            {name: outputs[name] for name in task.outputs} if len(here) < count else {},
        )
    return rows
