"""Parts of JSON files that are written piece by piece."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.insight.output_files import written_file


@contextmanager
def written_text(path: Path | None) -> Iterator[TextIO]:
    """As written_file, for text in UTF-8."""
    with written_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield text
        text.detach()  # which flushes it; written_file closes the file


def float_values(column: pa.ChunkedArray) -> list[Any]:
    """Floats of 16 or 32 bits with the fewest digits that give them again (0.83, not 0.8299999833106995); NaN is None."""
    texts = pc.cast(column, pa.string()).to_pylist()
    values = (None if text is None else float(text) for text in texts)
    return [value if value is not None and math.isfinite(value) else None for value in values]


def write_items(file: TextIO, items: Iterable[Any]) -> int:
    """Write JSON values, one a line, separated by commas: the inside of a list. Returns their number."""
    count = 0
    for item in items:
        file.write((",\n" if count else "") + json.dumps(item, ensure_ascii=False))
        count += 1
    return count
