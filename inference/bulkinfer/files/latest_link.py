"""logs/latest, a link to the newest folder in a folder of logs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from bulkinfer.files.atomic import temporary_path

log = logging.getLogger("bulkinfer")

LATEST = "latest"  # the link in a folder of logs


def point_latest(folder: Path) -> None:
    """Let the link `latest` beside `folder` point to it, replaced in one move. A failure is only a warning.

    `folder` may be given by that link. Another link stays: the folder of a job may lie on another disk.
    """
    folder = Path(os.path.abspath(linked_folder(folder)))
    link = folder.with_name(LATEST)
    temporary = temporary_path(link)
    try:
        try:
            os.symlink(folder.name, temporary)
            os.replace(temporary, link)
        finally:  # also after a signal
            temporary.unlink(missing_ok=True)
    except OSError as error:  # a folder of that name, or a file system without links
        log.warning(f"warning: {link} cannot be made to point to {folder.name}: {error.strerror}")


def linked_folder(folder: Path) -> Path:
    """The folder that `folder` names if it is the link `latest`, which is followed once; else `folder`."""
    return folder.parent / os.readlink(folder) if folder.name == LATEST and folder.is_symlink() else folder
