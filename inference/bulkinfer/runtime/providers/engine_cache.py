"""Engines that were built for a graph, kept with what they were built by: an unsound one is built anew, and that is told.

The runtime would load what has the right name, or fail on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.atomic import TEMPORARY_PREFIX, file_sha256, read_json, write_json

RECORD_FILE = "engines.json"
LOCK_FILE = ".lock"


def drop_unsound(folder: Path, built_by: dict[str, str]) -> str:
    """Remove the files of `folder` that are not as recorded, or all if `built_by` (packages with their versions) has changed;
    returns why, or nothing.
    """
    if not folder.is_dir():
        return ""
    try:
        found = read_json(folder / RECORD_FILE) if (folder / RECORD_FILE).is_file() else {}
    except BulkinferError:
        found = {}
    files, before = found.get("files"), found.get("built_by")
    files = files if isinstance(files, dict) else {}
    if files and before != built_by:
        reasons = [f"they were built by {_told(before)}, now {_told(built_by)}"]
        damaged = _engines(folder)
    else:
        damaged = [path for path in _engines(folder) if files.get(path.name) != file_sha256(path)]
        reasons = [f"{path.name} is not as recorded" for path in damaged]
    for path in damaged:
        path.unlink()
    return "; ".join(reasons) if damaged else ""


def record(folder: Path, built_by: dict[str, str]) -> None:
    """What lies in `folder` now is sound."""
    write_json(
        folder / RECORD_FILE, {"built_by": built_by, "files": {path.name: file_sha256(path) for path in _engines(folder)}}
    )


def _engines(folder: Path) -> list[Path]:
    """Whatever is no record, and no lock or what those who wait for it write beside it."""
    others = (RECORD_FILE, LOCK_FILE, TEMPORARY_PREFIX)
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(others) and path.is_file()]


def _told(packages: Any) -> str:
    if not isinstance(packages, dict):
        return "something unknown"
    return ", ".join(f"{name} {version}" for name, version in packages.items())
