"""What to do about a place that the operating system refuses: change its permissions, or name another one with an option."""

from __future__ import annotations

import errno
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from bulkinfer.commands.help import option_groups
from bulkinfer.types import printable_path

_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
_WRITTEN = ("log_path", "model_path", "to", "write_flags")  # options of what is written, besides those headed "output"


def way_out(config: Any, error: OSError) -> str:
    """What to do about `error`, raised by a command with these options; empty if it is no refusal of a place."""
    if error.errno not in _REFUSALS or not isinstance(error.filename, str | bytes):
        return ""
    path = Path(os.fsdecode(error.filename))
    place = _refused_place(path)
    option = _option_of(config, path) if os.access(place, os.R_OK) else ""  # what cannot even be read is not to be written
    other = f"give another --{option}" if option else ""
    if error.errno == errno.EROFS:
        return other or "the file system is read-only"
    return f"{other}{', or ' if other else ''}change the mode or owner of {printable_path(place)}"


def _refused_place(path: Path) -> Path:
    """The file or folder whose permissions refuse something to `path`: itself, or the nearest folder above it that is there."""
    there = next((place for place in (path, *path.parents) if os.path.lexists(place)), Path())
    if there.is_file() and os.access(there, os.R_OK) and not os.access(there.parent, os.W_OK | os.X_OK):
        return there.parent  # the file was to be removed or replaced
    return there


def _option_of(config: Any, path: Path) -> str:
    """The option of what is written that names `path`, a folder above it, or something in it; empty if none does."""
    headed = {field.name for field in option_groups(type(config)).get("output", [])}
    wanted = Path(os.path.abspath(path))
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, str) and value and (field.name in headed or field.name in _WRITTEN):
            named = Path(os.path.abspath(value))
            if wanted.is_relative_to(named) or named.is_relative_to(wanted):
                return str(field.name)
    return ""
