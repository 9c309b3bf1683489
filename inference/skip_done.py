"""--skip_done: a data set without the records that have an ok row in the outputs of earlier jobs like this one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inference.entries import PickedLines, content_hash
from inference.errors import UsageError
from inference.job import JOB_FILE, Job, fields_of, read_job, short
from inference.manifest import Dataset, Partition, Skipped
from inference.ok_rows import COLUMNS, done_rows, identities, raw
from inference.paths import canonical_json

# What may differ: which pictures, how they are handed out, and limits and devices, which change no ok row beyond last bits.
_FREE = {"manifest", "skipped", "limit", "batch_size", "device", "max_pixels", "max_file_bytes", "allow_cpu_nodes"}


def without_done(job: Job, dataset: Dataset) -> Dataset:
    """The data set of `job` without what its --skip_done names: pictures of the same key and, where both sides know it, size.

    Raises UsageError if one of those is no output, is this job's own, or its rows are of another kind; RunError if damaged.
    """
    outputs = tuple(job.config.skip_done)
    done = done_rows([(Path(output), check_alike(job, Path(output))) for output in outputs])
    partitions, left_out = [], []
    for partition in dataset.partitions:
        lines = partition.manifest.lines
        blocks = list(lines.blocks(COLUMNS, 0, len(lines)))
        is_done = _is_done(pa.concat_tables(blocks), done) if blocks else np.zeros(0, bool)
        numbers = np.flatnonzero(is_done)
        left_out.append((partition.index, len(numbers), content_hash(PickedLines(lines, numbers))))
        partitions.append(Partition(partition.index, partition.manifest.only(np.flatnonzero(~is_done)), partition.root))
    sha256 = hashlib.sha256(canonical_json(left_out).encode()).hexdigest()
    skipped = Skipped(outputs, sum(count for _, count, _ in left_out), sha256)
    return replace(dataset, partitions=tuple(partitions), skipped=skipped, is_listed=False)


def check_alike(job: Job, output: Path) -> dict[str, Any]:
    """_job.json of an earlier output. Raises UsageError naming each field in which its rows are of another kind."""
    found = read_job(output)
    if found is None:
        raise UsageError(f"--skip_done {output}: it holds no {JOB_FILE}; give the results folder of a job")
    if job.config.output and Path(job.config.output).resolve() == output.resolve():
        raise UsageError(f"--skip_done {output} is the --output itself: a resume needs no --skip_done; give another --output")
    there, now = fields_of(found["identity"]), fields_of(job.identity)
    free = _FREE | ({"graph_sha256"} if there.get("batch_size") != now["batch_size"] else set())  # a graph for each size
    differing = [
        f"{name} ({short(there.get(name))} there, {short(now.get(name))} now)"
        for name in sorted({*there, *now} - free)
        if canonical_json(there.get(name)) != canonical_json(now.get(name))
    ]
    if differing:
        raise UsageError(f"--skip_done {output}: its rows are of another kind, in {'; '.join(differing)}: run all pictures")
    return found


def _is_done(lines: pa.Table, done: pa.Table) -> np.ndarray[Any, Any]:
    """Which lines of a manifest have an ok row: of the same size, or where either side knows none, of the same key."""
    rows = pa.table({"key": raw(lines), "size": lines["size_bytes"]})
    unsized = done.filter(pc.is_null(done["size"]))
    found = pc.or_(
        pc.is_in(identities(rows), value_set=pc.unique(identities(done))),
        pc.or_(
            pc.is_in(rows["key"], value_set=pc.unique(unsized["key"])),
            pc.and_(pc.is_null(rows["size"]), pc.is_in(rows["key"], value_set=pc.unique(done["key"]))),
        ),
    )
    return np.asarray(found.to_numpy(), bool)
