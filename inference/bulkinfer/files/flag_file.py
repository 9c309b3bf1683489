"""A flag file of ours is whole or refused: it says in its first line whose it is, and ends in a mark.

A file that was cut off is one with fewer flags, and one cut inside its comments has none: taken so, a launch would run with
defaults that nobody asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bulkinfer.errors import UsageError

FIRST_LINE = "# written by bulkinfer bench --tune"  # more may follow in the line
END_MARK = "# end of the flags of bulkinfer bench --tune"
_ENOUGH = FIRST_LINE.partition(" --")[0]  # "# written by bulkinfer bench"
_WORD = re.compile(r"--?flagfile(?:=(.*))?", re.DOTALL)


def refuse_cut(argv: Sequence[str]) -> None:
    """Raises UsageError for a flag file in `argv`, or in one of those, that lacks its end.

    What cannot be read, or read twice, is left to others.
    """
    _refuse(_named(argv), [])


def _named(words: Sequence[str]) -> list[str]:
    """The flag files in command-line words, or in the lines of such a file."""
    found: list[str] = []
    for place, word in enumerate(words):
        if word == "--":
            break
        if match := _WORD.fullmatch(word):
            found += words[place + 1 : place + 2] if match[1] is None else [match[1]]
    return found


def _is_ours(lines: list[str]) -> bool:
    """By its first line, or as much of it as no user would write who means something else."""
    first = lines[0] if lines else ""
    return first.startswith(FIRST_LINE) or (lines == [first] and first.startswith(_ENOUGH) and FIRST_LINE.startswith(first))


def _refuse(names: list[str], above: list[Path]) -> None:
    for path in (Path(name).expanduser() for name in names):
        try:
            if path in above or not path.is_file():
                continue
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        if _is_ours(lines) and END_MARK not in lines:
            raise UsageError(f"--flagfile: {path} is cut off: make it again with bulkinfer bench --tune")
        _refuse(_named([line.strip() for line in lines]), [*above, path])
