"""Names of networks are compared without regard to case and separators."""

from __future__ import annotations


def plain(name: str) -> str:
    """`name` in lower case without `-`, `_` and `:`. Every command takes two names with one plain form for the same network."""
    return name.lower().translate(str.maketrans("", "", "-_:"))
