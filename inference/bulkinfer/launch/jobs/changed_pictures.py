"""Pictures of a plain folder that were replaced since their rows were made: the launch that goes on with the job warns of them.

The identity of a job holds names and sizes. So the times of the last changes lie in the own folder of its output, one for
each record, as they were when the launch that made its row listed the folder.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.errors import BulkinferError
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.jobs.job import Job
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.sources.folder import Picture, counted
from bulkinfer.results.output_store import output_store
from bulkinfer.types import Array, Step, printable, printable_path

log = logging.getLogger("bulkinfer")

TIMES_FILE = "_times.parquet"
_COLUMN = "mtime_ns"
_UNKNOWN = -1  # no file, or rows of an earlier version: nothing is compared


def warn_of_changed_pictures(job: Job, output: Path, todo: Sequence[Step]) -> Array | None:
    """Log a warning of the pictures that have a row in `output` and were changed since that launch listed them.

    Returns the times to keep: of records with a row those that are kept, of the others, which are in `todo`, those of now. None
    if they are kept already, the pictures lie in a store, or the data set was listed before by partition_dataset: then no
    launch looks at its files.
    """
    dataset = job.dataset
    scan = None if dataset is None else dataset.scan or dataset.found_now
    if dataset is None or scan is None:
        return None
    (partition,) = dataset.partitions
    manifest, count = partition.manifest, job.counts[partition.index]
    if manifest.archives:
        now = _times_of_archives(manifest, count)
    elif manifest.is_stored:
        return None
    elif dataset.scan is not None and dataset.skipped is None:  # then each record is a picture of the scan
        now = _times(scan.pictures[:count])
    else:
        now = _times_by_key(manifest, scan.pictures, count)
    kept = _read(output, job.fingerprint, count)
    before = now if kept is None else np.where(_with_row(job, partition.index, todo) & (kept != _UNKNOWN), kept, now)
    changed = np.flatnonzero((before != now) & (now != _UNKNOWN))
    if len(changed):
        first = next(manifest.entries(int(changed[0]), int(changed[0]) + 1))
        log.warning(
            f"warning: {counted(len(changed), 'picture')} changed since the rows in {output} were made, first "
            f"{printable(first.key)}: these rows stay as they are; --overwrite runs all {job.num_records:,} pictures again"
        )
    return None if kept is not None and np.array_equal(kept, before) else before


def _with_row(job: Job, partition: int, todo: Sequence[Step]) -> Array:
    """For each record of the partition: True if this job, or this shard of it, has a row for it."""
    found = np.zeros(job.counts[partition], bool)
    for is_there, steps in ((True, job.ranges()[partition]), (False, todo)):
        for step in steps:
            found[step.start : step.end] = is_there
    return found


def keep_times(job: Job, output: Path, times: Array | None) -> None:
    """Publish what warn_of_changed_pictures returned."""
    if times is None:
        return
    table = pa.table({_COLUMN: pa.array(times)}).replace_schema_metadata({"fingerprint": job.fingerprint})

    def write(file: BinaryIO) -> None:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)

    output_store(own_folder(output)).publish(TIMES_FILE, write, lambda: None, replaces=True)


def _times(pictures: Sequence[Picture | None]) -> Array:
    known = (None if picture is None else picture.mtime_ns for picture in pictures)
    return np.fromiter((_UNKNOWN if time_ns is None else time_ns for time_ns in known), np.int64, len(pictures))


def _times_of_archives(manifest: Manifest, count: int) -> Array:
    """A picture in an archive has the time of the archive."""
    of_archive = np.array([archive.mtime_ns for archive in manifest.archives], np.int64)
    times, start = np.empty(count, np.int64), 0
    for block in manifest.lines.blocks(["archive"], 0, count):
        times[start : start + len(block)] = of_archive[block["archive"].to_numpy()]
        start += len(block)
    return times


def _times_by_key(manifest: Manifest, pictures: Sequence[Picture], count: int) -> Array:
    """The times of the first `count` records; both are sorted by key."""
    position, found = 0, list[Picture | None]()
    for entry in manifest.entries(0, count):
        while position < len(pictures) and pictures[position].key < entry.key:
            position += 1
        is_there = position < len(pictures) and pictures[position].key == entry.key
        found.append(pictures[position] if is_there else None)
    return _times(found)


def _read(output: Path, fingerprint: str, count: int) -> Array | None:
    """The kept times; None if there are none of this job, or after a warning if they are damaged."""
    path = own_folder(output) / TIMES_FILE
    store = output_store(path.parent)
    if not store.has(path.name):
        return None
    try:
        with store.opened(path.name) as file:
            parquet = BoundedParquet(file, use_threads=False)
            found: Any = parquet.read([_COLUMN])[_COLUMN].to_numpy()
            metadata = parquet.schema.metadata or {}
    except (BulkinferError, pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        log.warning(f"warning: {printable_path(path)} is damaged ({error}): pictures that were changed are not noticed")
        return None
    is_ours = metadata.get(b"fingerprint") == fingerprint.encode() and found.dtype == np.int64 and len(found) == count
    return found if is_ours else None
