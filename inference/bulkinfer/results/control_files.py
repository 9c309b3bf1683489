"""Control files of an output, such as _job.json: JSON files of a folder, or objects of a bucket with the same content."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from bulkinfer.errors import ConflictError, UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.guarded import JSON_BYTES
from bulkinfer.files.json_file import json_content, json_text, read_json, write_json, write_new_json
from bulkinfer.types import printable_path


class Control(NamedTuple):
    """The content of a control file, the tag of its object (empty for a file), and its age by the clock of this host."""

    content: dict[str, Any]
    tag: str
    age_s: float


def control_exists(path: Path) -> bool:
    """True if there is a control file."""
    if not isinstance(path, AddressPath):
        return path.exists()
    from bulkinfer.results.output_store import output_store

    return output_store(path.parent).has(path.name)


def read_control(path: Path, *, most_bytes: int = JSON_BYTES) -> Control:
    """A control file. Raises UsageError if it is missing or from a newer version, DamagedError if it is damaged."""
    if not isinstance(path, AddressPath):
        content = read_json(path, most_bytes=most_bytes)
        return Control(content, "", max(0.0, time.time() - os.stat(path).st_mtime))
    from bulkinfer.results.bucket_store import read_object

    if (found := read_object(path, most_bytes)) is None:
        raise UsageError(f"{printable_path(path)} does not exist")
    return Control(json_content(path, found.data), found.tag, max(0.0, time.time() - found.changed_s))


def write_control(path: Path, content: dict[str, Any], *, instead_of: str = "") -> str:
    """Publish a control file; returns the tag of its object.

    In a bucket it replaces only the object with the tag `instead_of`, empty: none. Raises ConflictError if another is there.
    """
    if not isinstance(path, AddressPath):
        write_json(path, content)
        return ""
    from bulkinfer.results.bucket_store import put_object

    return put_object(path, json_text(content).encode(), instead_of=instead_of)


def write_new_control(path: Path, content: dict[str, Any]) -> bool:
    """Publish a control file unless there is one; returns whether it was written. Of several processes one writes it."""
    if not isinstance(path, AddressPath):
        return write_new_json(path, content)
    try:
        write_control(path, content)
    except ConflictError:
        return False
    return True


def show_control(path: Path, content: dict[str, Any]) -> None:
    """Publish a control file that is only shown: it replaces what is there, and may be lost in a power cut."""
    if not isinstance(path, AddressPath):
        write_json(path, content, is_durable=False)
        return
    from bulkinfer.results.bucket_store import overwrite_object

    overwrite_object(path, json_text(content).encode())
