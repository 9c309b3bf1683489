"""Names of networks, compared without regard to case and separators."""

from __future__ import annotations


def plain(name: str) -> str:
    """`name` without case, `-`, `_` and `:`: two names with one plain form are the same to every command."""
    return name.lower().translate(str.maketrans("", "", "-_:"))
