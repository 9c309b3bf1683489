"""TensorRT engines kept beside a graph, with their hashes and the packages that built them.

An engine that is damaged or was built by other packages is removed, so that it is built again. The runtime would load any
file of the right name, or fail on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.atomic import TEMPORARY_PREFIX, file_sha256
from bulkinfer.files.json_file import read_json, write_json

RECORD_FILE = "engines.json"
LOCK_FILE = ".lock"


def remove_invalid(folder: Path, built_by: dict[str, str]) -> str:
    """Remove the engines in `folder` that differ from their record, or all if `built_by` (packages and versions) has changed.

    Returns why engines were removed, or ''.
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
        reasons = [f"they were built by {_describe(before)}, now {_describe(built_by)}"]
        damaged = _engines(folder)
    else:
        damaged = [path for path in _engines(folder) if files.get(path.name) != file_sha256(path)]
        reasons = [f"{path.name} differs from its record" for path in damaged]
    for path in damaged:
        path.unlink()
    return "; ".join(reasons) if damaged else ""


def record(folder: Path, built_by: dict[str, str]) -> None:
    """Record the engines that are in `folder` now as valid."""
    write_json(
        folder / RECORD_FILE, {"built_by": built_by, "files": {path.name: file_sha256(path) for path in _engines(folder)}}
    )


def _engines(folder: Path) -> list[Path]:
    """All files but the record, the lock, and what processes that wait for the lock write."""
    others = (RECORD_FILE, LOCK_FILE, TEMPORARY_PREFIX)
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(others) and path.is_file()]


def _describe(packages: Any) -> str:
    if not isinstance(packages, dict):
        return "something unknown"
    return ", ".join(f"{name} {version}" for name, version in packages.items())
