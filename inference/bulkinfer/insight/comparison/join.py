"""Brings the rows of two jobs together by key, whatever the order and the parts of each, in bounded memory.

Large jobs are first written to temporary files, one for each bucket of keys. A key is in the same bucket of both jobs, so that
one pair of buckets after the other is joined in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.files.atomic import remove_abandoned, write_owner_file
from bulkinfer.files.guarded import open_regular
from bulkinfer.results.ok_rows import large_keys
from bulkinfer.results.reader import Results

BUCKET_ROWS = 500_000  # of each job, joined at once: some 100 bytes a row and job, and as much again for the join
_MOST_BUCKETS = 512  # files that are open at once
_HELD_ROWS = 1_000_000  # collected before they are divided among the buckets
_PREFIX = ".compare-"
ABANDONED = f"{_PREFIX}*"  # temporary folders, also those of processes that were killed
_COLUMNS = ("key", "key_bytes", "partition", "stage", "class_ids", "scores")
_SCHEMA = pa.schema([
    ("key", pa.large_binary()), ("partition", pa.int32()), ("stage", pa.string()),
    ("class_ids", pa.list_(pa.int32())), ("scores", pa.list_(pa.float32())),
])  # fmt: skip


class Pair(NamedTuple):
    """Rows of both jobs with the same keys in the same order, then those whose key only one of the jobs has.

    Columns: key (raw bytes), partition, stage (null: ok), class_ids, scores.
    """

    one: pa.Table
    other: pa.Table
    only_one: pa.Table
    only_other: pa.Table


def joined(one: Results, other: Results, folder: Path, bucket_rows: int = BUCKET_ROWS) -> Iterator[Pair]:
    """All rows of both jobs. Larger jobs than `bucket_rows` need temporary files in `folder`: some 100 bytes a row and job.

    The order is that of the buckets, and within one that of the first job.
    """
    num_buckets = min(_MOST_BUCKETS, -(-max(len(one), len(other), 1) // bucket_rows))
    if num_buckets == 1:
        yield _pair(*(pa.concat_tables([_SCHEMA.empty_table(), *_tables(job)]) for job in (one, other)))
        return
    remove_abandoned(folder, ABANDONED)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder) as temporary:
        write_owner_file(Path(temporary))  # a later comparison removes it, should this process be killed
        places = [Path(temporary, name) for name in ("one", "other")]
        for place, job in zip(places, (one, other), strict=True):
            place.mkdir()
            _divide(job, place, num_buckets)
        for bucket in range(num_buckets):
            yield _pair(*(_read(place / str(bucket)) for place in places))


def _tables(results: Results) -> Iterator[pa.Table]:
    for rows in results.tables(_COLUMNS):
        yield pa.table([large_keys(rows), *(rows[name] for name in _SCHEMA.names[1:])], _SCHEMA)


def _divide(results: Results, place: Path, num_buckets: int) -> None:
    """Write the rows of a job into one file for each bucket."""
    with ExitStack() as stack:
        writers = [_writer(stack, place / str(bucket)) for bucket in range(num_buckets)]
        for table in _held(_tables(results)):
            buckets = np.fromiter((crc32(key) % num_buckets for key in table["key"].to_pylist()), np.int32, len(table))
            order = np.argsort(buckets, kind="stable")
            starts = np.searchsorted(buckets[order], np.arange(num_buckets + 1))
            table = table.take(order)
            for bucket, writer in enumerate(writers):
                writer.write_table(table.slice(starts[bucket], starts[bucket + 1] - starts[bucket]))


def _held(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in larger tables: a few rows a time would take more room for their frames than for themselves."""
    held, count = list[pa.Table](), 0
    for table in tables:
        held.append(table)
        count += len(table)
        if count >= _HELD_ROWS:
            yield pa.concat_tables(held)
            held, count = [], 0
    if held:
        yield pa.concat_tables(held)


def _writer(stack: ExitStack, path: Path) -> Any:
    file = stack.enter_context(path.open("wb"))
    return stack.enter_context(pa.ipc.new_stream(file, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")))


def _read(path: Path) -> pa.Table:
    with open_regular(path) as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all()


def _pair(one: pa.Table, other: pa.Table) -> Pair:
    keys = other["key"].combine_chunks()
    places = pc.index_in(one["key"], value_set=keys)
    is_in_both = pc.is_valid(places)
    is_known = pc.is_in(keys, value_set=one["key"].combine_chunks())
    return Pair(
        one.filter(is_in_both),
        other.take(places.drop_null()),
        one.filter(pc.invert(is_in_both)),
        other.filter(pc.invert(is_known)),
    )
