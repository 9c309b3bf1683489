"""A saved output of the network as one NumPy array, with the keys of its rows beside it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError, escaped
from bulkinfer.files.atomic import publishing
from bulkinfer.insight.options import RowsConfig
from bulkinfer.insight.rows_format import FORMATS
from bulkinfer.insight.saving import again_with
from bulkinfer.results.reader import Results
from bulkinfer.types import Array


def keys_path(final: Path) -> Path:
    """Where the keys of an array lie."""
    return final.with_name(f"{final.name}.keys.txt")


def write_npy(results: Results, final: Path, config: RowsConfig) -> int:
    """Write the ok rows of a column as an array N x its shape, in the order of the parts, with the dtype that was saved.

    Line n of FILE.keys.txt is the key of row n, with control characters escaped. The keys are published first, so that an
    array is never without them. Returns N. Raises UsageError if the job has no such column, or no ok row.
    """
    name, count, header_bytes, shape, dtype = config.column, 0, 0, (), np.dtype(np.float32)
    with ExitStack() as stack:  # left in the opposite order
        values_file = stack.enter_context(stack.enter_context(publishing(final)).open("wb+"))
        keys_file = stack.enter_context(stack.enter_context(publishing(keys_path(final))).open("w", encoding="utf-8"))
        for table in results.tables():
            name = name or next((name for name in FORMATS["npy"].columns if name in table.column_names), "")
            ok = table.filter(pc.is_null(table["stage"]))
            values = _values(results, ok, name)
            if not header_bytes:  # before the first part, also if that holds error rows only
                shape, dtype = values.shape[1:], values.dtype
                header_bytes = _write_header(values_file, 0, shape, dtype)
            values.tofile(values_file)
            keys_file.writelines(f"{escaped(key)}\n" for key in ok["key"].to_pylist())
            count += len(ok)
        if not count:
            raise UsageError(f"{results.output} holds no ok row: there is nothing to write")
        values_file.seek(0)
        assert _write_header(values_file, count, shape, dtype) == header_bytes, "NumPy leaves room for the number of rows"
    return count


def _values(results: Results, table: pa.Table, name: str) -> Array:
    """A column of fixed-size lists as an array. Raises UsageError if the job saved none of this name."""
    saved = [field for field in table.schema if pa.types.is_fixed_size_list(field.type)]
    field = next((field for field in saved if field.name == name), None)
    if field is None:
        there = f"there are {', '.join(field.name for field in saved)}; " if saved else ""
        wanted = [name] if name else FORMATS["npy"].columns
        raise UsageError(f"the job saved no output {wanted[0]!r}: {there}{again_with(results, *wanted)}")
    shape = json.loads((field.metadata or {}).get(b"shape", json.dumps([field.type.list_size])))
    values: Array = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(table), *shape)


def _write_header(file: BinaryIO, count: int, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> int:
    """The header of an array of `count` rows; returns its length, which does not depend on `count`."""
    before = file.tell()
    facts = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count, *shape)}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.tell() - before
