"""Read the rows of a job from its results folder, as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import place_path
from bulkinfer.files.user_path import user_path
from bulkinfer.results.find_output import find_output, require_job
from bulkinfer.results.output_store import require_bucket
from bulkinfer.results.parquet_parts import published_steps, read_part, schema
from bulkinfer.results.part_names import part_name
from bulkinfer.results.rows import Task
from bulkinfer.types import Step

_OF_AN_ERROR = ("key", "key_bytes", "partition", "stage", "error", "size_bytes")
_NO_OUTPUTS = Task(1, frozenset(), True, 0, (), "", {})  # its columns are those of every job


class Results:
    """The rows that a job has published, one per picture; the job may still be running.

    `output` is the folder, `job` the content of its _job.json, `parts` are the paths of the Parquet files, ordered by partition
    and first record. `len()` is the number of rows in them. Call `read_results` again to see what the job publishes later.
    """

    def __init__(self, output: Path, job: dict[str, Any], steps: list[Step]) -> None:
        self.output, self.job, self._steps = output, job, steps
        self.parts = tuple(output / part_name(step) for step in steps)

    def __len__(self) -> int:
        return sum(map(len, self._steps))

    @property
    def is_complete(self) -> bool:
        """True if every picture of the job has its row."""
        return len(self) == int(self.job["num_records"])

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, in the order of the parts, with `columns` in the given order, or all columns (docs/reference/columns.md).

        Each part is checked when it is read: page checksums, keys, its job; only `verify` also compares file hashes.
        Raises UsageError for an unknown column, RunError that names the file for a part that is damaged or of another job.
        """
        columns = columns if isinstance(columns, str) else _names(columns)
        tables = list(self.tables(columns))
        if not tables:  # no part is published yet
            return self._select(schema(_NO_OUTPUTS).empty_table(), columns)
        return pa.concat_tables(tables)

    def tables(self, columns: Sequence[str] | None = None, *, skips_absent: bool = False) -> Iterator[pa.Table]:
        """The same rows, one table per part, for results larger than memory. Raises the errors of `table`.

        `skips_absent`: those of `columns` that the job did not save are left out.
        """
        if isinstance(columns, str):
            raise UsageError(f"columns is the string {columns!r}: give a list of names")
        columns = _names(columns)
        for step in self._steps:
            _, table = read_part(self.output, step, self.job["fingerprint"], columns)
            if columns is not None and skips_absent:
                yield table.replace_schema_metadata().select([name for name in columns if name in table.column_names])
                continue
            if columns is not None and not set(columns) <= set(table.column_names):
                _, table = read_part(self.output, step, self.job["fingerprint"])  # all columns, for the error message
            yield self._select(table.replace_schema_metadata(), columns)

    def errors(self) -> pa.Table:
        """The error rows: key, key_bytes, partition, stage (read, decode, preprocess or infer), error, size_bytes.

        Raises the RunErrors of `table`.
        """
        rows = self.with_errors().table(_OF_AN_ERROR)
        return rows.filter(pc.is_valid(rows["stage"]))

    def with_errors(self) -> Results:
        """The same without the parts in which _job.json counts no error row."""
        return Results(self.output, self.job, [step for step in self._steps if not self._is_clean(step)])

    def _is_clean(self, step: Step) -> bool:
        recorded = self.job["parts"].get(part_name(step))
        return recorded is not None and not recorded["stages"] and int(recorded["ok"]) == len(step)

    def _select(self, table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        if missing := [name for name in columns or () if name not in table.column_names]:
            raise UsageError(f"{self.output} has no column {missing[0]!r}; there are {', '.join(table.column_names)}")
        return table if columns is None else table.select(columns)


def _names(columns: Any) -> list[str] | None:
    """The names of columns as a list. Raises UsageError if they are none."""
    if columns is None:
        return None
    names = list(columns) if isinstance(columns, Iterable) else [columns]
    if not isinstance(columns, Iterable) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"columns is {columns!r}: give a list of names")
    return names


def read_results(output: str | os.PathLike[str]) -> Results:
    """Open the results folder of a job (`--output`, by default logs/<job>/results); rows are read later, by its methods.

    Raises UsageError if `output` is not a results folder or a newer bulkinfer wrote it, RunError if its _job.json is damaged
    or two of its parts overlap.
    """
    given = place_path(user_path(output, "output"))
    require_bucket(given, "")
    folder = find_output(given)
    return Results(folder, require_job(folder).content, published_steps(folder))
