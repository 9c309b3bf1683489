"""The pictures that have an ok row in results folders: by key, and by file size where the rows hold it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.records.manifest_rows import raw_key_column
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.parquet_parts import published_steps, read_part

COLUMNS = ["key", "key_bytes", "size_bytes"]  # manifests have the same columns
OK_SCHEMA = pa.schema([("key", pa.large_binary()), ("size", pa.int64())])  # large_binary: the keys of all rows may exceed 2 GiB


def done_rows(outputs: list[tuple[Path, JobFile]]) -> pa.Table:
    """Keys and sizes of the ok rows of all outputs, given as (directory, its _job.json); a size may be null."""
    return pa.concat_tables(
        [OK_SCHEMA.empty_table(), *(table for output, job in outputs for table in ok_rows(output, job.fingerprint))]
    )


def ok_rows(output: Path, fingerprint: str) -> Iterator[pa.Table]:
    """A table with OK_SCHEMA of the ok rows of each part: `key` as raw bytes, `size` null where it is not known."""
    for step in published_steps(output):
        _, table = read_part(output, step, fingerprint, COLUMNS)
        yield ok_rows_of(table)


def ok_rows_of(table: pa.Table) -> pa.Table:
    """A table with OK_SCHEMA of the ok rows in one table of rows."""
    ok = table.filter(pc.is_null(table["stage"]))
    sizes = ok["size_bytes"] if "size_bytes" in ok.column_names else pa.nulls(len(ok), pa.int64())
    return pa.table([large_keys(ok), sizes], OK_SCHEMA)


def identities(rows: pa.Table) -> pa.ChunkedArray:
    """Key and size joined into one value for comparison; the NUL between them occurs in no path."""
    sizes = pc.fill_null(rows["size"].cast(pa.large_string()), "").cast(pa.large_binary())
    return pc.binary_join_element_wise(rows["key"], sizes, pa.scalar(b"\0", pa.large_binary()))


def large_keys(table: pa.Table) -> pa.ChunkedArray:
    """The keys of a table of rows or of a manifest, of the type in OK_SCHEMA."""
    return raw_key_column(table).cast(pa.large_binary())
