"""Refuse flag files that absl would wait for or never finish, and truncated ones of `bulkinfer bench --tune`.

The first line of the latter names the command, their last line is an end mark. A truncated file holds fewer flags, or none if
it ends within the comments. Without this check a launch would silently run with defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from bulkinfer.errors import DamagedError, UsageError, os_error_reason
from bulkinfer.files.guarded import TEXT_BYTES, read_text
from bulkinfer.types import printable_path

FIRST_LINE = "# written by bulkinfer bench --tune"  # the line may go on after this
END_MARK = "# end of the flags of bulkinfer bench --tune"
_ENOUGH = FIRST_LINE.partition(" --")[0]  # "# written by bulkinfer bench"
_WORD = re.compile(r"--?flagfile(?:=(.*))?", re.DOTALL)


def refuse_unfit(argv: Sequence[str]) -> None:
    """Raises UsageError if a flag file in `argv`, or in such a file, cannot be opened, is too large, or lacks its end mark.

    Files that are no text, and files that name each other, are left to absl, which reports them.
    """
    _refuse(_named(argv), [])


def _named(words: Sequence[str]) -> list[str]:
    """The flag files that command-line words, or the lines of a flag file, name."""
    found: list[str] = []
    for place, word in enumerate(words):
        if word == "--":
            break
        if match := _WORD.fullmatch(word):
            found += words[place + 1 : place + 2] if match[1] is None else [match[1]]
    return found


def _is_ours(lines: list[str]) -> bool:
    """True if `bulkinfer bench --tune` wrote the file: by its first line, or by the beginning of it if the file ends there."""
    first = lines[0] if lines else ""
    return first.startswith(FIRST_LINE) or (lines == [first] and first.startswith(_ENOUGH) and FIRST_LINE.startswith(first))


def _refuse(names: list[str], above: list[Path]) -> None:
    for path in (Path(os.path.expanduser(name.strip())) for name in names if name.strip()):
        if path in above:
            continue
        try:
            lines = read_text(path, TEXT_BYTES).splitlines()
        except OSError as error:
            raise UsageError(f"--flagfile: {printable_path(path)} cannot be read: {os_error_reason(error)}") from None
        except UnicodeDecodeError:
            continue
        except DamagedError as error:
            raise UsageError(f"--flagfile: {error}: give a file with one flag a line") from None
        if _is_ours(lines) and END_MARK not in lines:
            raise UsageError(f"--flagfile: {path} is cut short: make it again with bulkinfer bench --tune")
        _refuse(_named([line.strip() for line in lines]), [*above, path])
