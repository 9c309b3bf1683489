"""How values are written on a page, and where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
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


def test_a_page_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    there = tmp_path / "report.html"
    page.write_page(there, "one")
    with pytest.raises(UsageError, match=r"is there already: give --overwrite"):
        page.require_place(there, overwrite=False)
    page.require_place(there, overwrite=True)
    page.write_page(there, "two")
    assert there.read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_is_no_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder: give the name of a file"):
        page.require_place(tmp_path, overwrite=True)
    page.require_place(tmp_path / "new" / "report.html", overwrite=False)
