"""Notes of what was once found out, beside the card of a network: figures with the facts under which they hold.

They spare a measurement, no more: whoever finds none, or one that is damaged, finds out anew.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.atomic import read_json, write_json
from bulkinfer.files.json_validation import mismatch

log = logging.getLogger("bulkinfer")

_MOST_BYTES = 1 << 20  # more was not written by us
_MOST_ENTRIES = 50  # the newest: hosts and versions come and go


def read_kept(path: Path, name: str, kind: Any) -> list[dict[str, Any]]:
    """The entries of list `name` that have the structure of the TypedDict `kind`; none where there is no file of ours, or it is
    newer or damaged.
    """
    try:
        found = read_json(path) if path.is_file() and path.stat().st_size <= _MOST_BYTES else {}
    except (BulkinferError, OSError):  # whoever cannot read it finds out anew, and hears of it when it is written
        found = {}
    entries = found.get(name)
    return [entry for entry in entries if not mismatch(entry, kind)] if isinstance(entries, list) else []


def keep(path: Path, name: str, kind: Any, entry: dict[str, Any]) -> None:
    """Add an entry; one warning where that is not possible."""
    others = read_kept(path, name, kind)[1 - _MOST_ENTRIES :]  # read again: another launch may have written meanwhile
    try:
        write_json(path, {name: [*others, entry]})
    except OSError as error:
        log.warning(f"{path} is not written ({error.strerror}): the next launch measures again")
