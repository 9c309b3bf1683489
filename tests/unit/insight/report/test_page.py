"""How values are written on a page."""

from __future__ import annotations

import pytest
from bulkinfer.insight.report import page


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0 s"), (0.004, "4 ms"), (3.21, "3.2 s"), (250, "4 min 10 s"), (7500, "2 h 5 min"), (360_000, "100 h 0 min")],
)
def test_seconds(value: float, text: str) -> None:
    assert page.seconds(value) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0.0 %"), (0.0001, "under 0.1 %"), (0.1234, "12.3 %"), (1, "100.0 %")])
def test_percent(share: float, text: str) -> None:
    assert page.percent(share) == text


def test_names_show_what_would_not_be_seen() -> None:
    assert page.name(b"caf\xe9\n.png") == "caf\\xe9\\n.png"
    assert page.name("\u202egnp.exe") == "\\u202egnp.exe"
    assert page.name("日本 <b>") == "日本 <b>"
