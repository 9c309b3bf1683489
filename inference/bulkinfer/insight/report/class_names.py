"""Names of the classes that the page shows: from the card of the network, else from rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc

from bulkinfer.insight.class_names import classes_of
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.results.parquet_parts import read_part
from bulkinfer.results.part_names import part_step
from bulkinfer.results.reader import Results

_MOST_PARTS = 8  # that are read for names


def names_of_classes(found: FoundJob, results: Results, wanted: Iterable[int], model_path: str) -> dict[int, str]:
    """The name of each wanted class, its first synonym; its number where no name is found."""
    missing, names = set(wanted), dict[int, str]()
    card = classes_of(found.job, model_path)
    names |= {number: name for number in missing if (name := card.name(number))}
    for path in results.parts[:_MOST_PARTS]:
        if not missing - names.keys():
            break
        names |= _named_in(results, path.name, missing - names.keys())
    return {number: names.get(number, "").partition(",")[0] or f"class {number}" for number in missing}


def _named_in(results: Results, part: str, missing: set[int]) -> dict[int, str]:
    step = part_step(part)
    assert step is not None, "Results lists parts only"
    _, table = read_part(results.output, step, results.job["fingerprint"], ("class_ids", "class_names"))
    if "class_names" not in table.column_names:
        return {}
    numbers, names = (pc.list_flatten(table[name]) for name in ("class_ids", "class_names"))
    found, first = np.unique(numbers.to_numpy(), return_index=True)
    is_missing = np.isin(found, list(missing))
    return dict(zip(found[is_missing].tolist(), names.take(first[is_missing]).to_pylist(), strict=True))
