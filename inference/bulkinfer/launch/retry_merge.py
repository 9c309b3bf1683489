"""The rows of a retry replace error rows: each part that holds some is written again, its other rows unchanged.

The metadata of the new file holds the hash of the file it replaces: it is accepted while _job.json still records the old one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import RunError
from bulkinfer.records.manifest_rows import raw_key_column
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import METADATA_KEY, Part, publish_table, published_steps, read_part
from bulkinfer.results.part_names import part_name, part_step
from bulkinfer.types import Step, shell_word

log = logging.getLogger("bulkinfer")


def staged_keys(staging: Path, fingerprint: str) -> dict[int, dict[Step, pa.ChunkedArray]]:
    """The keys of each part that a retry published in its own folder, by partition; each part is read in full.

    A damaged part, as after a power cut, is removed with a warning: its rows replaced nothing yet, and its records run again.
    """
    found: dict[int, dict[Step, pa.ChunkedArray]] = {}
    for step in published_steps(staging):
        try:
            _, table = read_part(staging, step, fingerprint)
        except RunError as error:
            log.warning(f"{error}; removed, its records run again")
            output_store(staging).remove(part_name(step))
            continue
        found.setdefault(step.partition, {})[step] = raw_key_column(table)
    return found


def failed_rows(output: Path, step: Step, fingerprint: str, stages: Collection[str]) -> Iterator[int]:
    """Record numbers of the error rows of a part that failed at one of `stages`."""
    _, table = read_part(output, step, fingerprint, [])
    found = pc.is_in(table["stage"], value_set=pa.array(sorted(stages), pa.string()))
    yield from (step.start + int(index) for index in np.flatnonzero(found.to_numpy()))


def merge(output: Path, staging: Path, job_file: JobFile, *, before_rename: Callable[[], None]) -> tuple[int, int]:
    """Put what lies in `staging` into the parts of `output`; returns how many error rows became ok, and how many did not.

    The new parts are recorded in `job_file`, of `output`, which the caller publishes. What an earlier try has done is not done
    again. `before_rename` is called before each part is replaced, and may refuse by an error. Raises RunError if a part of
    `output` is damaged.
    """
    staged = staged_keys(staging, job_file.fingerprint)
    read = lru_cache(maxsize=2)(lambda step: read_part(staging, step, job_file.fingerprint)[1])
    now_ok = still = 0
    for name in sorted(job_file.parts):
        if not job_file.parts[name]["stages"] or not staged:
            continue
        step = part_step(name)
        if step is None:
            raise RunError(f"{output} records {name}, which is no name of a part: run bulkinfer verify {shell_word(output)}")
        part, table = read_part(output, step, job_file.fingerprint)
        merged, gained, same = _merged(table, staged.get(step.partition, {}), read)
        now_ok, still = now_ok + gained, still + same
        if merged is not None:
            job_file.note_part(_rewrite(output, part, table, merged, gained, before_rename))
    return now_ok, still


def _merged(
    table: pa.Table, staged: dict[Step, pa.ChunkedArray], read: Callable[[Step], pa.Table]
) -> tuple[pa.Table | None, int, int]:
    """The table with the rows of the retry for error rows (None: nothing changes); how many became ok, how many did not."""
    order, new_rows, length = np.arange(len(table)), list[pa.Table](), len(table)
    gained = same = 0
    failed = np.flatnonzero(pc.is_valid(table["stage"]).to_numpy())
    keys = raw_key_column(table).take(pa.array(failed))
    for step, there in staged.items():
        places = pc.index_in(keys, value_set=there)  # null: not in that part
        hits = failed[places.is_valid().to_numpy()]
        if not len(hits):
            continue
        rows = read(step).take(places.drop_null()).select(table.column_names).cast(table.schema.remove_metadata())
        is_ok = pc.is_null(rows["stage"]).to_numpy()
        gained, same = gained + int(is_ok.sum()), same + int((~is_ok).sum())
        is_new = is_ok.copy()
        is_new[~is_ok] = _differ(rows.filter(pa.array(~is_ok)), table.take(pa.array(hits[~is_ok])))
        order[hits[is_new]] = length + np.arange(is_new.sum())
        new_rows.append(rows.filter(pa.array(is_new)))
        length += len(new_rows[-1])
    if not any(map(len, new_rows)):
        return None, gained, same
    return pa.concat_tables([table.replace_schema_metadata(None), *new_rows]).take(order).combine_chunks(), gained, same


def _differ(rows: pa.Table, others: pa.Table) -> list[bool]:
    """For each pair of rows: True if they differ in any column."""
    return [one != other for one, other in zip(rows.to_pylist(), others.to_pylist(), strict=True)]


def _rewrite(output: Path, part: Part, old: pa.Table, new: pa.Table, gained: int, before_rename: Callable[[], None]) -> Part:
    """Publish the table `new` under the name of `part`; `gained` of its rows have become ok."""
    facts = json.loads(old.schema.metadata[METADATA_KEY])
    facts |= {"replaces": part.sha256, "retried": facts.get("retried", 0) + gained}
    sha256 = publish_table(output / part_name(part.step), new, facts, before_rename=before_rename)
    stages = {str(item["values"]): int(item["counts"]) for item in pc.value_counts(new["stage"].drop_null()).to_pylist()}
    return Part(part.step, len(new) - sum(stages.values()), stages, sha256, part.sha256)
