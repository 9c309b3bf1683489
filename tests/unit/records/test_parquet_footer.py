"""parquet_footer.py: the sizes of column chunks, from footers that may be damaged."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.records.parquet_footer import Chunk, read_chunks

from tests.forms import long


def written(rows: int = 10) -> bytes:
    table = pa.table({"a": range(rows), "lists": [[0.5] * number for number in range(rows)], "text": ["x"] * rows})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=4)
    return file.getvalue()


def test_it_says_what_pyarrow_says() -> None:
    data = written()
    metadata = pq.read_metadata(pa.BufferReader(data))
    expected = []
    for index in range(metadata.num_row_groups):
        columns = [metadata.row_group(index).column(number) for number in range(3)]
        expected.append([(c.path_in_schema.partition(".")[0], c.num_values, c.total_uncompressed_size) for c in columns])
    found = read_chunks(io.BytesIO(data))
    assert [[(chunk.name, chunk.num_values, chunk.size_bytes) for chunk in group] for group in found] == expected
    assert isinstance(found[0][0], Chunk)


@long
def test_damage_is_a_value_error_or_other_numbers() -> None:
    data, draw = written(), random.Random(1)
    for length in (0, 4, 11, len(data) - 9):
        with pytest.raises(ValueError, match=r"footer|too small"):
            read_chunks(io.BytesIO(data[:length]))
    for _ in range(3000):
        changed = bytearray(data)
        changed[draw.randrange(len(data) - 1000, len(data))] ^= 1 << draw.randrange(8)
        try:
            read_chunks(io.BytesIO(changed))
        except ValueError:
            continue
