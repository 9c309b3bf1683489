"""number_text.py: shares, sizes, durations and rates."""

from __future__ import annotations

import pytest
from bulkinfer.host.number_text import duration_text, percent_text, rate_text, size_text


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (0, 1, "0.0 %"),
        (0.0001, 1, "under 0.1 %"),
        (0.1234, 1, "12.3 %"),
        (1, 1, "100.0 %"),
        (0.12345, 2, "12.35 %"),
        (0.00001, 2, "under 0.01 %"),
        (0.004, 0, "under 1 %"),
        (0.126, 0, "13 %"),
    ],
)
def test_shares(share: float, decimals: int, text: str) -> None:
    assert percent_text(share, decimals) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 kB"),
        (1, "1 kB"),
        (1_234, "1 kB"),
        (44_400, "44 kB"),
        (999_499, "999 kB"),
        (999_999, "1.0 MB"),
        (18_700_000, "18.7 MB"),
        (999_960_000, "1.0 GB"),
        (7_200_000_000_000, "7,200.0 GB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.004, "4 ms"),
        (3.21, "3.2 s"),
        (59, "59 s"),
        (59.97, "1 min 0 s"),
        (307, "5 min 7 s"),
        (7300, "2 h 1 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_rates() -> None:
    assert rate_text(1234.56) == "1234.6 images/sec"
