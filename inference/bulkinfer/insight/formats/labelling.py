"""The best class of every ok row, for programs in which people look at pictures: Label Studio and FiftyOne."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import pyarrow.compute as pc

from bulkinfer.errors import escaped
from bulkinfer.insight.formats.json_text import float_values, write_items, written_text
from bulkinfer.insight.options import RowsConfig
from bulkinfer.records.sources.folder import counted
from bulkinfer.results.answers import ANSWER_COLUMNS, class_texts, num_ranked, ranked
from bulkinfer.results.reader import Results

log = logging.getLogger("bulkinfer")


class _Best(NamedTuple):
    key: str
    key_bytes: bytes
    name: str
    score: float | None
    is_utf8: bool


def write_label_studio(results: Results, final: Path | None, config: RowsConfig) -> int:
    """Write tasks with predictions, as Label Studio imports them, and beside them the labelling interface that it needs first.

    The address of a picture is --prefix and its key, with the characters escaped that addresses cannot hold. Returns the
    number of tasks.
    """
    version = f"{results.job['identity'].get('model_name')}-{results.job['fingerprint'][:8]}"
    names = set[str]()

    def tasks() -> Iterator[dict[str, Any]]:
        for best in _best_of(results):
            names.add(best.name)
            yield _task(best, version, config.prefix)

    with written_text(final) as file:
        file.write("[\n")
        count = write_items(file, tasks())
        file.write("\n]\n")
        if final is not None:  # before the tasks are published: they are never without it
            _write_interface(interface_path(final), sorted(names))
    return count


def interface_path(final: Path) -> Path:
    """Where the labelling interface of tasks lies."""
    return final.with_name(f"{final.name}.interface.xml")


def _write_interface(path: Path, names: list[str]) -> None:
    """Write the interface for these classes: Label Studio takes no prediction of a class that its project does not have."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in names)
    with written_text(path) as file:
        file.write(f'<View>\n  <Image name="image" value="$image"/>\n  <Choices name="choice" toName="image">\n{choices}'
                   "  </Choices>\n</View>\n")  # fmt: skip


def _task(best: _Best, version: str, prefix: str) -> dict[str, Any]:
    choice = {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [best.name]}}
    is_share = best.score is not None and 0 <= best.score <= 1  # it takes no others
    prediction = {"model_version": version, "score": best.score if is_share else None, "result": [choice]}
    return {"data": {"image": prefix + quote(best.key_bytes), "key": best.key}, "predictions": [prediction]}


def write_fiftyone(results: Results, final: Path | None, _: RowsConfig) -> int:
    """Write labels as FiftyOneImageClassificationDataset has them: key without its extension -> class and confidence.

    Rows with names that FiftyOne cannot find are left out, with one warning: with one such name it takes none. Returns the
    number of labels.
    """
    count, num_left_out, first_left_out = 0, 0, ""
    with written_text(final) as file:
        file.write('{"labels": {\n')
        for best in _best_of(results):
            if not best.is_utf8 or "\\" in best.key:
                num_left_out, first_left_out = num_left_out + 1, first_left_out or best.key
                continue
            label = {"label": best.name} | ({} if best.score is None else {"confidence": best.score})
            name = json.dumps(os.path.splitext(best.key)[0], ensure_ascii=False)
            file.write(f"{',' if count else ''}{name}: {json.dumps(label, ensure_ascii=False)}\n")
            count += 1
        file.write("}}\n")
    if num_left_out:
        log.warning(
            f"warning: left out {counted(num_left_out, 'row')}, the first of which is "
            f"{escaped(first_left_out)}: FiftyOne cannot find pictures whose names hold a backslash or are not UTF-8"
        )
    return count


def _best_of(results: Results) -> Iterator[_Best]:
    """The best class of every ok row of a job that saved classes."""
    for table in results.tables(("key", "key_bytes", "stage", *ANSWER_COLUMNS), skips_absent=True):
        ok = table.filter(pc.is_null(table["stage"]))
        if num_ranked(ok):
            best, keys = ranked(ok, 0), ok["key"].to_pylist()
            others = ok["key_bytes"].to_pylist()
            raw = [other or key.encode() for other, key in zip(others, keys, strict=True)]
            are_utf8 = [other is None for other in others]
            yield from map(_Best, keys, raw, class_texts(best), float_values(best.scores), are_utf8)
