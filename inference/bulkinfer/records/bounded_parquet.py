"""Parquet files that somebody else may have written, read in bounded memory: a few kilobytes can stand for gigabytes of rows.

Text is read as codes of distinct values, and turned into values only after their sizes were added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bulkinfer.host.number_text import size_text
from bulkinfer.records.parquet_footer import Chunk, read_chunks

_MOST_BYTES = 448 << 20  # of a table in memory; reading takes twice that. Saved outputs of a step: 256 MiB, or one batch
_MOST_GROWTH = 32  # times the size of the file: large batches may take more, but do not shrink that much in a file
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4, 7: 16}  # by physical type; a text is a code of 4 bytes


class Footer(NamedTuple):
    """What is known of a file before rows are read; `texts` are the paths of columns of text or bytes."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    chunks: list[list[Chunk]]
    texts: list[str]

    @classmethod
    def of(cls, source: Any) -> Footer:
        """That of an open file. Raises what pyarrow raises for a damaged file, or ValueError."""
        plain = pq.ParquetFile(source)
        columns = (plain.schema.column(index) for index in range(len(plain.schema)))
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        return cls(plain.metadata, plain.schema_arrow, read_chunks(source), texts)


class BoundedParquet:
    """An open Parquet file, checked by its page checksums. Raises what pyarrow raises for a damaged file.

    `footer` is given by a caller that has opened the same file before: that of a large file takes half a second to read.
    """

    def __init__(self, source: Any, size_bytes: int = 0, *, use_threads: bool = True, footer: Footer | None = None) -> None:
        self._use_threads = use_threads  # threads may keep what they decoded a little longer
        self.footer = footer or Footer.of(source)
        self.metadata, self.schema, self._chunks, texts = self.footer
        self._most_bytes = max(_MOST_BYTES, _MOST_GROWTH * size_bytes)
        self._file = pq.ParquetFile(source, metadata=self.metadata, page_checksum_verification=True, read_dictionary=texts)

    def read(self, columns: Sequence[str], groups: Sequence[int] | None = None) -> pa.Table:
        """These columns of some row groups, or of all. Raises ValueError if they would take much more memory than the file."""
        groups = range(self.metadata.num_row_groups) if groups is None else groups
        names = set(columns)
        self._check(sum(self._group_bytes(index, names) for index in groups))
        fields = pa.schema([self.schema.field(name) for name in columns], self.schema.metadata)
        return pa.concat_tables([fields.empty_table(), *(self._group(index, fields) for index in groups)])

    def _group(self, index: int, fields: pa.Schema) -> pa.Table:
        """A row group by itself: pyarrow does not read the codes of texts in lists from several at once."""
        coded = self._file.read_row_group(index, columns=fields.names, use_threads=self._use_threads)
        self._check(coded.nbytes + sum(_text_bytes(chunk) for column in coded.columns for chunk in column.chunks))
        return coded.select(fields.names).cast(fields)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._most_bytes:
            raise ValueError(f"its rows would take {size_text(size_bytes)} of memory")

    def _group_bytes(self, index: int, names: set[str]) -> int:
        """Memory that columns of a row group take before text is decoded, by what the file says of itself."""
        num_rows, total = self.metadata.row_group(index).num_rows, 0
        for chunk in self._chunks[index]:
            if chunk.name in names:
                kind = self.schema.field(chunk.name).type
                values = max(chunk.num_values, num_rows * (kind.list_size if pa.types.is_fixed_size_list(kind) else 1))
                total += values * _WIDTHS.get(chunk.kind, 16) + chunk.size_bytes
        return total


def _text_bytes(array: pa.Array) -> int:
    """Bytes of the text in an array once it is decoded."""
    if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        return _text_bytes(array.values)
    if not pa.types.is_dictionary(array.type) or not len(array.dictionary):
        return 0
    lengths = pc.binary_length(array.dictionary)
    if len(array) * pc.max(lengths).as_py() <= _MOST_BYTES // 64:  # the usual case: no need to add them up
        return len(array) * int(pc.max(lengths).as_py())
    return int(pc.sum(lengths.take(array.indices).cast(pa.int64())).as_py() or 0)
