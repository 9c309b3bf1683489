"""The rows of a retry take the place of error rows: a part that holds some is rewritten whole, its other rows as they were.

The new file says in its metadata which one it replaces, by hash: so it proves itself where _job.json still records the old one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inference.entries import raw_keys
from inference.errors import RunError
from inference.parts import part_name, part_step
from inference.results import METADATA_KEY, Part, publish_table, published_steps, read_part
from inference.types import Step

_ROWS = ["status", "error"]


@dataclass
class Staged:
    """The rows of a retry in their own directory, by partition and key; files are read when a row of them is asked for."""

    folder: Path
    fingerprint: str
    places: dict[tuple[int, bytes], tuple[Step, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for step in published_steps(self.folder):
            _, table = read_part(self.folder, step, self.fingerprint, [])
            for index, key in enumerate(raw_keys(table)):
                self.places[step.partition, key] = step, index
        self._read = lru_cache(maxsize=2)(lambda step: read_part(self.folder, step, self.fingerprint)[1])

    def row(self, partition: int, key: bytes) -> pa.Table | None:
        """The one row, as a table; None if the retry has none."""
        if (place := self.places.get((partition, key))) is None:
            return None
        return self._read(place[0]).slice(place[1], 1)


def failed_rows(output: Path, step: Step, fingerprint: str, stages: Collection[str]) -> Iterator[int]:
    """Record numbers of the error rows of a part that failed at one of `stages`."""
    _, table = read_part(output, step, fingerprint, [])
    found = pc.is_in(table["stage"], value_set=pa.array(sorted(stages), pa.string()))
    yield from (step.start + int(index) for index in np.flatnonzero(found.to_numpy()))


def merge(output: Path, staging: Path, fingerprint: str, parts: dict[str, Any]) -> tuple[int, int]:
    """Put what lies in `staging` into the parts of `output`; returns how many error rows became ok, and how many did not.

    `parts`, of _job.json, is brought up to date; the caller writes it. What an earlier try has done is not done again.
    Raises RunError if a file is damaged.
    """
    staged = Staged(staging, fingerprint)
    now_ok = still = 0
    for name in sorted(parts):
        if not parts[name]["stages"] or not staged.places:
            continue
        step = part_step(name)
        if step is None:
            raise RunError(f"{output} records {name}, which is no name of a part: run bulkinfer verify {output}")
        part, table = read_part(output, step, fingerprint)
        merged, gained, same = _merged(table, step, staged)
        now_ok, still = now_ok + gained, still + same
        if merged is not None:
            parts[name] = _rewrite(output, part, table, merged, gained).as_json()
    return now_ok, still


def _merged(table: pa.Table, step: Step, staged: Staged) -> tuple[pa.Table | None, int, int]:
    """The rows with those of the retry in place of error rows (None: nothing changes), how many became ok, how many did not."""
    order, news = np.arange(len(table)), list[pa.Table]()
    gained = same = 0
    failed = [int(index) for index in np.flatnonzero(pc.is_valid(table["stage"]).to_numpy())]
    keys = raw_keys(table.take(failed)) if failed else []
    for index, key in zip(failed, keys, strict=True):
        if (row := staged.row(step.partition, key)) is None:
            continue
        row = row.select(table.column_names).cast(table.schema.remove_metadata())
        is_ok = row["stage"][0].as_py() is None
        gained, same = gained + is_ok, same + (not is_ok)
        if is_ok or row.to_pylist() != table.slice(index, 1).to_pylist():
            order[index] = len(table) + len(news)
            news.append(row)
    if not news:
        return None, gained, same
    return pa.concat_tables([table.replace_schema_metadata(None), *news]).take(order).combine_chunks(), gained, same


def _rewrite(output: Path, part: Part, old: pa.Table, new: pa.Table, gained: int) -> Part:
    """Publish the new rows under the name of the part."""
    facts = json.loads(old.schema.metadata[METADATA_KEY])
    facts |= {"replaces": part.sha256, "retried": facts.get("retried", 0) + gained}
    sha256 = publish_table(output / part_name(part.step), new, facts)
    stages = {str(item["values"]): int(item["counts"]) for item in pc.value_counts(new["stage"].drop_null()).to_pylist()}
    return Part(part.step, len(new) - sum(stages.values()), stages, sha256, part.sha256)
