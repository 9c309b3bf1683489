"""COCO: images, categories, and annotations that have a score, as COCO's results have. Classes, not boxes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.insight.formats.flat import num_classes
from bulkinfer.insight.formats.json_text import float_values, write_items, written_text
from bulkinfer.insight.options import RowsConfig
from bulkinfer.results.answers import ANSWER_COLUMNS, class_texts, ranked
from bulkinfer.results.reader import Results


def write_coco(results: Results, final: Path | None, config: RowsConfig) -> int:
    """Write the ok rows: `id` of an image is its number in the file, from 1, and `category_id` the number of the class.

    Every image has one annotation for each class, best first. The parts are read twice, once for the images and once for the
    annotations, since the file has one list after the other. Returns the number of images.
    """
    count, categories = num_classes(results, config.top_k), dict[int, str]()
    info = {"description": f"classes by {results.job['identity'].get('model_name')}", "fingerprint": results.job["fingerprint"]}
    with written_text(final) as file:
        file.write(f'{{"info": {json.dumps(info)},\n"images": [\n')
        num_images = write_items(file, _images(results))
        file.write('\n],\n"annotations": [\n')
        write_items(file, _annotations(results, count, categories))
        file.write('\n],\n"categories": [\n')
        write_items(file, ({"id": number, "name": categories[number]} for number in sorted(categories)))
        file.write("\n]}\n")
    return num_images


def _ok_tables(results: Results, *columns: str) -> Iterator[pa.Table]:
    for table in results.tables(("stage", *columns), skips_absent=True):
        yield table.filter(pc.is_null(table["stage"]))


def _images(results: Results) -> Iterator[dict[str, Any]]:
    number = 0
    for table in _ok_tables(results, "key", "width", "height"):
        for row in table.to_pylist():
            number += 1
            yield {"id": number, "file_name": row["key"], "width": row["width"], "height": row["height"]}


def _annotations(results: Results, count: int, categories: dict[int, str]) -> Iterator[dict[str, Any]]:
    """An annotation for each of the best `count` classes of every image; what they are called is added to `categories`."""
    number = first = 0
    for table in _ok_tables(results, *ANSWER_COLUMNS):
        found = [ranked(table, rank) for rank in range(count if len(table) else 0)]
        ids = [one.ids.to_pylist() for one in found]
        for one, names in zip(ids, map(class_texts, found), strict=True):
            categories.update(zip(one, names, strict=True))
        scores = [float_values(one.scores) for one in found]
        for row in range(len(table)):
            for rank in range(len(found)):
                number += 1
                yield {"id": number, "image_id": first + row + 1, "category_id": ids[rank][row], "score": scores[rank][row]}
        first += len(table)
