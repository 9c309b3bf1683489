"""How many groups channels are put into where the number asked for does not divide them."""

from __future__ import annotations


def fitting_groups(channels: int, asked: int) -> int:
    """The largest number of groups that divides the channels and is not above the one asked for; at least 1."""
    return next(groups for groups in range(max(1, min(asked, channels)), 0, -1) if channels % groups == 0)
