"""Numbers as text for people: shares, sizes, durations and rates, each written in one way everywhere."""

from __future__ import annotations

from itertools import pairwise

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def percent_text(share: float, decimals: int = 1) -> str:
    """A share from 0 to 1 as 12.3 %; one that is not 0 but would be shown as 0.0 % as under 0.1 %."""
    least = 10**-decimals
    shown = f"under {least:.{decimals}f}" if 0 < 100 * share < least / 2 else f"{100 * share:.{decimals}f}"
    return f"{shown} %"


def size_text(size_bytes: float) -> str:
    """A size in units of 1000: 0 kB, 44 kB, 18.7 MB, 1.2 GB. What is not empty has at least 1 kB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= 0.9995 * factor:
            return f"{size_bytes / factor:,.1f} {unit}"
    return f"{max(round(size_bytes / 1e3), size_bytes > 0):d} kB"


def duration_text(seconds: float) -> str:
    """A length of time: 4 ms, 3.2 s, 59 s; from a minute on the two largest units, as in 5 min 7 s or 2 d 7 h."""
    if 0 < seconds < 0.05:
        return f"{1000 * seconds:.0f} ms"
    if (rounded := round(seconds, 1)) < 60:
        return f"{rounded:g} s"
    whole = round(seconds)
    for (size, large), (inner, small) in pairwise(_UNITS):
        if whole >= size:
            return f"{whole // size} {large} {whole % size // inner} {small}"
    raise AssertionError("a minute or more")


def rate_text(images_per_s: float) -> str:
    """123.4 images/sec"""
    return f"{images_per_s:.1f} images/sec"
