"""A table for people, as lines that fit the terminal."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence

from bulkinfer.errors import escaped

_WIDTH = 80  # characters, where there is no terminal
_WIDE, _TALL = 1 << 20, 1 << 20  # characters, lines
_GAP = 3  # characters between columns on a terminal
_NARROWEST = 8  # characters of a column of text whose values go on in the next line


def table_lines(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = (), breaks: bool = True
) -> list[str]:
    """The lines of a table with all values whole; on a terminal that is too narrow for it, each row as lines of its own.

    If it `breaks`, long texts go on in the next line of their cell, and without a terminal it is as wide as one of 80
    characters. Otherwise no value is broken, and without a terminal each row is one line, for grep and the like. The columns
    that `numbers` names are aligned to the right, and are never broken. On a terminal the header is underlined.
    """
    cells = [[escaped(value) for value in row] for row in rows]
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_WIDTH, _TALL)).columns if is_terminal else _WIDTH if breaks else _WIDE
    is_whole = [not breaks or name in numbers for name in header]
    if is_terminal and _least_width(header, cells, is_whole) > width:
        return [line for row in cells for line in _row_lines(header, row, width)]
    return _drawn(header, cells, numbers, is_whole, width)


def _least_width(header: Sequence[str], rows: Sequence[Sequence[str]], is_whole: Sequence[bool]) -> int:
    from rich.cells import cell_len

    widest = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    kept = (size if whole else min(size, _NARROWEST) for size, whole in zip(widest, is_whole, strict=True))
    return sum(kept) + _GAP * (len(header) - 1)


def _row_lines(header: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """The first value on its own line, the others below it, as many in a line as fit. What is longer the terminal breaks."""
    from rich.cells import cell_len

    lines = [row[0]]
    for piece in (f"{name}: {value}" for name, value in zip(header[1:], row[1:], strict=True)):
        if len(lines) > 1 and cell_len(lines[-1]) + cell_len(piece) + 2 <= width:
            lines[-1] += f"; {piece}"
        else:
            lines.append(f"  {piece}")
    return lines


def _drawn(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str], is_whole: Sequence[bool], width: int
) -> list[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, show_edge=False)
    for name, whole in zip(header, is_whole, strict=True):
        table.add_column(Text(name), justify="right" if name in numbers else "left", no_wrap=whole, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    file = io.StringIO()
    Console(file=file, width=width, height=_TALL, color_system=None, force_terminal=False, legacy_windows=False).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]
