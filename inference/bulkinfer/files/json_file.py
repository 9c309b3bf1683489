"""Control files: JSON objects with a format number and a checksum of their own content.

Format 2 carries `checksum`, which `read_json` compares, so that damage and edits by hand are seen. Format 1, written by earlier
versions, has none: it is read with one warning.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from bulkinfer.errors import DamagedError, UsageError, first_line
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import canonical_json, publish_new, publishing
from bulkinfer.files.guarded import JSON_BYTES, read_bytes
from bulkinfer.types import printable_path, shell_word

log = logging.getLogger("bulkinfer")

JSON_FORMAT = 2
_UNSEALED_FORMAT = 1
_FIELD_DIGITS = 12  # of the hash of a single field, which only names what was edited
_has_warned = False


def write_json(path: Path, value: dict[str, Any], *, is_durable: bool = True) -> None:
    """Publish `value` as indented JSON, with the format number of this version and a checksum.

    One that is not durable is still complete or absent for readers, but may be lost or empty after a power cut.
    """
    with publishing(path, is_durable=is_durable) as temporary:
        temporary.write_text(json_text(value))


def write_new_json(path: Path, value: dict[str, Any]) -> bool:
    """The same unless there is a file of this name; returns whether it was written. Of several processes one writes it."""
    return publish_new(path, json_text(value).encode())


def json_text(value: dict[str, Any]) -> str:
    """The content of a control file, see write_json."""
    content = json.loads(json.dumps({**value, "format": JSON_FORMAT}))  # as it will be read: tuples are lists, keys are text
    content = {"format": content.pop("format"), **content, "checksum": _checksum(content)}
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def read_json(path: Path, *, most_bytes: int = JSON_BYTES) -> dict[str, Any]:
    """The value that write_json() was given.

    Raises UsageError if the file is missing or from a newer version, DamagedError if it is damaged or was edited.
    """
    return json_content(path, _bytes_of(path, most_bytes))


def json_content(path: Path, data: bytes) -> dict[str, Any]:
    """The same, out of the bytes of the file called `path`."""
    content, text_format = _parsed(path, data)
    if text_format == _UNSEALED_FORMAT:
        _warn_once(path)
        return content
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        again = "" if isinstance(path, AddressPath) else f"; after an edit by hand, run: bulkinfer seal {shell_word(path)}"
        raise DamagedError(f"{printable_path(path)} is damaged (its content does not match its checksum{again})")
    return content


def read_edited(path: Path, most_bytes: int = JSON_BYTES) -> tuple[dict[str, Any], list[str]]:
    """The content of a control file that somebody may have edited, and what has changed since it was written.

    A change reads as "changed: labels is now ['cat', 'dog']"; write_json() of the content accepts all of them.
    Raises UsageError if the file is missing or from a newer version, DamagedError if it is no control file.
    """
    content, text_format = _parsed(path, _bytes_of(path, most_bytes))
    recorded = content.pop("checksum", None) if text_format == JSON_FORMAT else None
    now = _checksum(content)
    if recorded == now:
        return content, []
    before = recorded.get("fields") if isinstance(recorded, dict) else None
    changes = ["added: the checksum, which an earlier version did not write"] if text_format == _UNSEALED_FORMAT else []
    if text_format == JSON_FORMAT:
        changes = _changes(before, now["fields"], content) if isinstance(before, dict) else ["changed: the checksum itself"]
    return content, changes


def _changes(before: dict[str, Any], now: dict[str, str], content: dict[str, Any]) -> list[str]:
    changed = [
        f"changed: {name} is now {_short(content[name])}" for name in now if name in before and before[name] != now[name]
    ]
    added = [f"added: {name} is {_short(content[name])}" for name in now if name not in before]
    removed = [f"removed: {name}" for name in before if name not in now]
    return changed + added + removed or ["changed: the checksum itself"]


def _bytes_of(path: Path, most_bytes: int) -> bytes:
    try:
        return read_bytes(path, most_bytes)
    except FileNotFoundError:
        raise UsageError(f"{printable_path(path)} does not exist") from None


def _parsed(path: Path, data: bytes) -> tuple[dict[str, Any], int]:
    """The content without its format number, and that number, which is one that this version reads."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{printable_path(path)} is damaged (not JSON: {first_line(error)})") from None
    if not isinstance(value, dict):
        raise DamagedError(f"{printable_path(path)} is damaged (not a JSON object)")
    found = value.pop("format", None)
    if type(found) is int and found > JSON_FORMAT:
        raise UsageError(
            f"{printable_path(path)} has format {found}; this bulkinfer reads formats up to {JSON_FORMAT}: "
            "install a newer bulkinfer"
        )
    if type(found) is not int or found not in (_UNSEALED_FORMAT, JSON_FORMAT):
        raise DamagedError(f"{printable_path(path)} is damaged (its format is {json.dumps(found)[:40]}, not {JSON_FORMAT})")
    return value, found


def _checksum(content: dict[str, Any]) -> dict[str, Any]:
    """sha256 of the canonical JSON of a content, and the first digits of that of each of its fields."""
    fields = {name: canonical_json(content[name]) for name in sorted(content)}
    whole = "{" + ",".join(f"{canonical_json(name)}:{text}" for name, text in fields.items()) + "}"
    short = {name: hashlib.sha256(text.encode()).hexdigest()[:_FIELD_DIGITS] for name, text in fields.items()}
    return {"sha256": hashlib.sha256(whole.encode()).hexdigest(), "fields": short}


def _warn_once(path: Path) -> None:
    """Once in a process: a job may have many files of an earlier version."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        log.warning(
            f"warning: {printable_path(path)} was written by an earlier version, without a checksum: damage to it may not be "
            f"noticed; to add one: bulkinfer seal {shell_word(path)}"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
