"""The folder of bulkinfer's own files about a results folder, kept apart so that readers of the results find parts only.

Polars reads every file below a folder, whatever its name (docs/adr/0022-own-files-beside-the-results.md). So these files lie
beside the results folder NAME, in .NAME.bulkinfer; and where that is not possible, in .bulkinfer inside it.
"""

from __future__ import annotations

import os
from pathlib import Path

SUFFIX = ".bulkinfer"
_LONGEST_NAME = 255  # bytes, in the usual file systems


def own_folder(output: Path) -> Path:
    """The folder for the lock, _job.json and rows that are not published yet of a results folder. It need not exist.

    A folder that lies in such a folder holds its own files itself.
    """
    place = output.resolve() if output.is_symlink() or output.name in ("", "..") else output  # one folder has one lock
    if place.parent.name.endswith(SUFFIX):
        return output
    inside, beside = place / SUFFIX, place.with_name(f".{place.name}{SUFFIX}") if place.name else place
    return beside if _can_be_beside(place, beside) and not inside.is_dir() else inside


def make_own_folder(output: Path) -> Path:
    """The own folder of `output`, made with the folders above it; inside of `output` that is `output` itself, too."""
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = own_folder(output)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _can_be_beside(place: Path, beside: Path) -> bool:
    """False at a mount point: what lies beside it is lost with a container, and cannot be renamed into it."""
    if beside == place or len(os.fsencode(beside.name)) > _LONGEST_NAME:
        return False
    if place.exists() and (place.stat().st_dev != place.parent.stat().st_dev or os.path.ismount(place)):
        return False
    return beside.is_dir() or not place.parent.exists() or os.access(place.parent, os.W_OK | os.X_OK)
