"""How values are written on a page."""

from __future__ import annotations

from bulkinfer.insight.report import page


def test_names_show_what_would_not_be_seen() -> None:
    assert page.name(b"caf\xe9\n.png") == "caf\\xe9\\n.png"
    assert page.name("\u202egnp.exe") == "\\u202egnp.exe"
    assert page.name("日本 <b>") == "日本 <b>"
