"""Cached measurements beside the card of a network, each with the conditions it was made under.

They only save time: without a cache, or with a damaged one, the measurement is made again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.json_validation import mismatch

log = logging.getLogger("bulkinfer")

_MOST_BYTES = 1 << 20  # a larger file was not written by bulkinfer
_MOST_ENTRIES = 50  # only the newest stay: hosts and versions change


def read_measurements(path: Path, name: str, kind: Any) -> list[dict[str, Any]]:
    """The entries of list `name` that have the structure of the TypedDict `kind`.

    Empty if the file is missing, damaged, of a newer format or not one of bulkinfer's.
    """
    try:
        found = read_json(path) if path.is_file() and path.stat().st_size <= _MOST_BYTES else {}
    except (BulkinferError, OSError):  # the caller measures again, and a warning follows if the file cannot be written either
        found = {}
    entries = found.get(name)
    return [entry for entry in entries if not mismatch(entry, kind)] if isinstance(entries, list) else []


def add_measurement(path: Path, name: str, kind: Any, entry: dict[str, Any]) -> None:
    """Add an entry; logs one warning if the file cannot be written."""
    others = read_measurements(path, name, kind)[1 - _MOST_ENTRIES :]  # read again: another launch may have written since
    try:
        write_json(path, {name: [*others, entry]})
    except OSError as error:
        log.warning(f"{path} is not written ({error.strerror}): the next launch measures again")
