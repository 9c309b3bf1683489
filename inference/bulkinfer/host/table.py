"""A table for people, as lines that fit the terminal."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence

from bulkinfer.errors import escaped

_WIDTH = 80  # characters, where there is no terminal
_WIDE, _TALL = 1 << 20, 1 << 20  # characters, lines


def table_lines(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = (), breaks_in_files: bool = True
) -> list[str]:
    """The lines of a table; long values go on in the next line of their cell, so that nothing is left out.

    Without a terminal a table is as wide as one of 80 characters; with `breaks_in_files` false, as wide as its values: then
    each row is one line, for grep and the like. The columns that `numbers` names are aligned to the right and stay on one line.
    On a terminal the header is underlined.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=False, show_edge=False)
    for name in header:
        is_number = name in numbers
        table.add_column(Text(name), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escaped(value)) for value in row))
    width = shutil.get_terminal_size((_WIDTH, _TALL)).columns if is_terminal else _WIDTH
    if not (is_terminal or breaks_in_files):
        width = _WIDE
    file = io.StringIO()
    Console(file=file, width=width, height=_TALL, color_system=None, force_terminal=False, legacy_windows=False).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]
