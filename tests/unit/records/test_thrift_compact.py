"""thrift_compact.py: what it writes is what parquet_footer.py reads."""

from __future__ import annotations

from typing import Any

import pytest
from bulkinfer.records.parquet_footer import read_structure
from bulkinfer.records.thrift_compact import Long, compact


@pytest.mark.parametrize(
    "value",
    [
        {1: 0, 2: -1, 3: 1 << 30, 4: -(1 << 31)},
        {1: Long(1 << 62), 16: Long(-1)},
        {3: b"", 5: b"x" * 300},
        {1: [1, 2, 3], 2: [b"a"] * 20, 3: [{1: 7}, {2: b"y", 3: {1: 0}}]},
        {},
    ],
)
def test_structures_come_back(value: dict[int, Any]) -> None:
    written = compact(value)
    assert read_structure(written + b"rest") == (value, len(written))


def test_as_the_protocol_has_it() -> None:
    """Zigzag numbers, a field by its distance from the one before, a stop behind the last one: thrift-compact-protocol.md."""
    assert compact({1: 1, 3: Long(-2), 4: b"ab"}) == bytes([0x15, 2, 0x26, 3, 0x18, 2]) + b"ab" + b"\0"
