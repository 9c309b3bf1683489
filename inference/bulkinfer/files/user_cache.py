"""The folder of this user for what can be fetched or made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """The folder `name` of bulkinfer in the user's cache, $XDG_CACHE_HOME or ~/.cache; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "bulkinfer", name).absolute()
