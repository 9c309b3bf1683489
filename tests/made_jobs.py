"""Jobs whose rows a test makes by hand: published parts and a _job.json, without a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.config import LaunchConfig
from bulkinfer.results.job_file import JobFile, job_path, json_sha256
from bulkinfer.results.parquet_parts import Part, write_part
from bulkinfer.results.rows import StepRows, Task
from bulkinfer.types import Facts, Record, Step

from tests.models import LABELS
from tests.sealed import edited


def write_job(
    output: Path,
    keys: Sequence[bytes],
    class_ids_NK: Any,
    scores_NK: Any = None,
    *,
    errors: Mapping[int, tuple[str, str]] | None = None,
    part_rows: int = 100,
    config: Mapping[str, Any] | None = None,
    names: tuple[str, ...] = LABELS,
    **identity: Any,
) -> Path:
    """Publish rows with these keys, kept classes and scores (by default falling ones) as a complete job; returns `output`.

    `errors` are by row. `names` are those of the network's classes, `identity` and `config` what else _job.json holds.
    """
    output.mkdir(parents=True)
    ids = np.asarray(class_ids_NK, np.int32).reshape(len(keys), -1)
    scores = np.linspace(0.9, 0.1, ids.shape[1]) * np.ones(ids.shape) if scores_NK is None else np.asarray(scores_NK)
    facts = {"model_name": "tiny", "top_k": ids.shape[1], "labels_sha256": json_sha256(names), **identity}
    fingerprint = json_sha256(facts)
    task = Task(ids.shape[1], frozenset({"topk"}), True, max(len(names), 1), (), "logits", {})
    steps = [Step(0, start, min(start + part_rows, len(keys))) for start in range(0, len(keys), part_rows)]
    parts = [_write_part(output, step, task, keys, (ids, scores), errors or {}, fingerprint) for step in steps]
    JobFile({
        "fingerprint": fingerprint, "identity": facts, "config": {"log_path": LaunchConfig.log_path, **(config or {})},
        "resolved": {"provider": "cpu"}, "versions": {}, "source": "made by a test", "num_records": len(keys),
        "partitions": {"0": {"num_records": len(keys), "keys_sha256": ""}}, "complete": True,
        "parts": {part.name: part.as_json() for part in parts},
    }).write(output)  # fmt: skip
    return output


def _write_part(
    output: Path,
    step: Step,
    task: Task,
    keys: Sequence[bytes],
    values: tuple[Any, Any],
    errors: Mapping[int, tuple[str, str]],
    fingerprint: str,
) -> Part:
    rows, place = StepRows(step, task, 1), slice(step.start, step.end)
    rows.records = [Record(number, keys[number], b"/nowhere/" + keys[number]) for number in range(step.start, step.end)]
    rows.facts = [Facts("JPEG", 1, 64, 48)] * len(step)
    rows.errors = {number - step.start: error for number, error in errors.items() if step.start <= number < step.end}
    rows.class_ids_SK, rows.scores_SK = values[0][place], values[1][place].astype(np.float32)
    return write_part(output, rows, len(step), {"fingerprint": fingerprint})


def without_classes(output: Path) -> Path:
    """A job of --save none, as far as it is read before its rows."""

    def drop(content: dict[str, Any]) -> None:
        del content["identity"]["top_k"]
        content["fingerprint"] = json_sha256(content["identity"])

    edited(job_path(write_job(output, [b"red/1"], [1])), drop)
    return output
