"""Where bulkinfer keeps what it has learned of archives: beside them, or in the user's cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from bulkinfer.files.addresses import address_of
from bulkinfer.files.user_cache import user_cache

KEPT = ".bulkinfer-index"  # how the names of such files begin


def kept_places(root: bytes, name: str) -> tuple[Path, ...]:
    """Where a file about the folder `root` may lie, in the order in which they are tried. That of a store lies in the cache.

    `name` is the name beside the archives, and begins with KEPT.
    """
    address = address_of(root)
    folder = hashlib.sha256(root if address else os.path.realpath(root)).hexdigest()[:24]
    in_cache = user_cache("archives") / (folder + name.removeprefix(KEPT))
    return (in_cache,) if address else (Path(os.fsdecode(root), name), in_cache)


def can_be_written(path: Path) -> bool:
    """Whether the folder of such a file can be written to; that of the cache is made."""
    if not path.name.startswith(KEPT):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
    return os.access(path.parent, os.W_OK | os.X_OK) and not os.statvfs(path.parent).f_flag & os.ST_RDONLY
