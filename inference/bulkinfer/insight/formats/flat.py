"""CSV and JSON lines: one flat row per picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from bulkinfer.insight.formats.json_text import float_values
from bulkinfer.insight.options import RowsConfig
from bulkinfer.insight.output_files import written_file
from bulkinfer.results.answers import ANSWER_COLUMNS, num_ranked, ranked
from bulkinfer.results.reader import Results

_COLUMNS = ("key", "status", *ANSWER_COLUMNS, "stage", "error")
_ROWS = 10_000  # of a CSV that pyarrow writes at once: meanwhile a stop signal waits
_KINDS = {"class": pa.int32(), "label": pa.string(), "score": pa.float32()}


def flat_tables(results: Results, top_k: int) -> Iterator[pa.Table]:
    """All rows, a table per part: key, status, class_1, label_1, score_1 and so on for each class, stage, error.

    All tables have the columns of the job, whatever rows are in them. `top_k` limits the classes; 0: all that were saved.
    """
    count = num_classes(results, top_k)
    for table in results.tables(_COLUMNS, skips_absent=True):
        yield _flat(table, count)


def num_classes(results: Results, top_k: int) -> int:
    """How many classes each ok row holds, at most `top_k` if that is not 0. Reads parts up to the first with an ok row."""
    for table in results.tables(ANSWER_COLUMNS, skips_absent=True):
        if "class_ids" not in table.column_names:
            return 0
        if found := num_ranked(table):
            return min(found, top_k or found)
    return 0


def _flat(table: pa.Table, count: int) -> pa.Table:
    columns = {name: table[name] for name in ("key", "status")}
    for rank in range(count):
        if not num_ranked(table):  # error rows only
            columns |= {f"{name}_{rank + 1}": pa.nulls(len(table), kind) for name, kind in _KINDS.items()}
            continue
        found = ranked(table, rank)
        names = pa.nulls(len(table), pa.string()) if found.names is None else found.names
        columns |= {f"class_{rank + 1}": found.ids, f"label_{rank + 1}": names, f"score_{rank + 1}": found.scores}
    return pa.table(columns | {name: table[name] for name in ("stage", "error")})


def write_csv(results: Results, final: Path | None, config: RowsConfig) -> int:
    """Write `final` as CSV (RFC 4180, with line feeds): texts in quotes, so that keys may hold anything; null is empty.

    Returns the number of rows.
    """
    options, count = pa.csv.WriteOptions(include_header=False), 0
    with written_file(final) as file:
        for table in flat_tables(results, config.top_k):
            if not count:
                file.write(",".join(table.column_names).encode() + b"\n")
            whole = table.combine_chunks()  # pyarrow writes NULs for empty chunks
            for start in range(0, len(whole), _ROWS):
                lines = pa.BufferOutputStream()  # pyarrow closes what it is given
                pa.csv.write_csv(whole.slice(start, _ROWS), lines, options)
                file.write(lines.getvalue())
            count += len(table)
    return count


def write_jsonl(results: Results, final: Path | None, config: RowsConfig) -> int:
    """Write `final` with one JSON object a line, its names those of the CSV; NaN is null. Returns the number of rows."""
    count = 0
    with written_file(final) as file:
        for table in flat_tables(results, config.top_k):
            for row in zip(*map(_values, table.columns), strict=True):
                line = json.dumps(dict(zip(table.column_names, row, strict=True)), ensure_ascii=False)
                file.write(line.encode() + b"\n")
            count += len(table)
    return count


def _values(column: pa.ChunkedArray) -> list[object]:
    return float_values(column) if pa.types.is_floating(column.type) else column.to_pylist()
