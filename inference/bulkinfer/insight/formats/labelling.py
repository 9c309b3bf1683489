"""The best class of every ok row, for programs in which people look at pictures: Label Studio and FiftyOne."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow.compute as pc

from bulkinfer.insight.class_columns import require_classes
from bulkinfer.insight.formats.json_text import float_values, write_items, written_text
from bulkinfer.insight.options import RowsConfig
from bulkinfer.results.answers import ANSWER_COLUMNS, class_texts, num_ranked, ranked
from bulkinfer.results.reader import Results


class _Best(NamedTuple):
    key: str
    key_bytes: bytes
    name: str
    score: float | None


def write_label_studio(results: Results, final: Path, config: RowsConfig) -> int:
    """Write tasks with predictions, as Label Studio imports them, for its template of image classification.

    The address of a picture is --prefix and its key, with the characters escaped that addresses cannot hold. Returns the
    number of tasks.
    """
    version = f"{results.job['identity'].get('model_name')}-{results.job['fingerprint'][:8]}"
    with written_text(final) as file:
        file.write("[\n")
        count = write_items(file, (_task(best, version, config.prefix) for best in _best_of(results)))
        file.write("\n]\n")
    return count


def _task(best: _Best, version: str, prefix: str) -> dict[str, Any]:
    choice = {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [best.name]}}
    prediction = {"model_version": version, "score": best.score, "result": [choice]}
    return {"data": {"image": prefix + quote(best.key_bytes), "key": best.key}, "predictions": [prediction]}


def write_fiftyone(results: Results, final: Path, _: RowsConfig) -> int:
    """Write labels as FiftyOneImageClassificationDataset has them: key without its extension -> class and confidence.

    Returns the number of labels.
    """
    count = 0
    with written_text(final) as file:
        file.write('{"labels": {\n')
        for best in _best_of(results):
            label = {"label": best.name} | ({} if best.score is None else {"confidence": best.score})
            name = json.dumps(os.path.splitext(best.key)[0], ensure_ascii=False)
            file.write(f"{',' if count else ''}{name}: {json.dumps(label, ensure_ascii=False)}\n")
            count += 1
        file.write("}}\n")
    return count


def _best_of(results: Results) -> Iterator[_Best]:
    """The best class of every ok row. Raises UsageError if the job saved no classes."""
    require_classes(results)
    for table in results.tables(("key", "key_bytes", "stage", *ANSWER_COLUMNS), skips_absent=True):
        ok = table.filter(pc.is_null(table["stage"]))
        if num_ranked(ok):
            best, keys = ranked(ok, 0), ok["key"].to_pylist()
            raw = [known or key.encode() for known, key in zip(ok["key_bytes"].to_pylist(), keys, strict=True)]
            yield from map(_Best, keys, raw, class_texts(best), float_values(best.scores))
