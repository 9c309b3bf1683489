"""`bulkinfer train --compile`: a folder for compiled code that nobody else can write to.

torch would take /tmp/torchinductor_<user>, and load libraries from it also where somebody else has made it first.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bulkinfer.errors import first_line
from bulkinfer.files.user_cache import user_cache
from bulkinfer.files.user_path import real_path

log = logging.getLogger("bulkinfer")

_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}  # and our folder for each


@contextmanager
def private_cache(is_wanted: bool) -> Iterator[None]:
    """Let torch keep compiled code in a private folder, if that is wanted, until the block ends.

    It is bulkinfer/compiled in the user's cache folder; a new temporary one, removed at the end, if that is not private.
    Variables that the user has set stay.
    """
    ours = [name for name in _VARIABLES if not _is_set(name)] if is_wanted else []
    if not ours:
        yield
        return
    folder = _users_folder()
    is_temporary = folder is None
    folder = folder or Path(tempfile.mkdtemp(prefix="bulkinfer-compiled-"))  # 0700, and of a name that nobody knows before
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update({name: str(folder / _VARIABLES[name]) for name in ours})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        if is_temporary:
            shutil.rmtree(folder, ignore_errors=True)


def _is_set(name: str) -> bool:
    """True if the user has set the variable. torch sets the first one itself, to its own default."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    return os.environ.get(name, "") not in ("", default_cache_dir())


def _users_folder() -> Path | None:
    """The folder in the user's cache; None, with a warning, if somebody else could write to it."""
    folder = user_cache("compiled")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = why_not_private(folder)
    except (OSError, RuntimeError) as error:  # no home, or a read-only one
        reason = f"it cannot be made ({first_line(error)})"
    if reason:
        log.warning(f"warning: --compile keeps its code for this run only, not in {folder}: {reason}")
    return None if reason else folder


def why_not_private(folder: Path) -> str:
    """Why another user could change what lies in a folder; empty if none could. Raises OSError if it cannot be looked at."""
    for path in (folder, *folder.parents):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return why_not_private(real_path(folder))
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to user {found.st_uid}"
        is_shared = found.st_mode & 0o022
        if is_shared and (path == folder or not found.st_mode & stat.S_ISVTX):
            return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""
