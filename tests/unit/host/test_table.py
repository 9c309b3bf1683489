"""table.py: tables that fit, with everything in them."""

from __future__ import annotations

import io
import sys

import pytest
from bulkinfer.host.table import table_lines


def test_a_small_table() -> None:
    assert table_lines(["key", "score"], [["a", "1"], ["long name", "10"]], numbers=["score"]) == [
        "key        score",
        "a              1",
        "long name     10",
    ]


def test_long_values_go_on_in_the_next_line_of_80_characters() -> None:
    lines = table_lines(["key", "class", "score"], [["k" * 100, "c" * 50, "0.123"]], numbers=["score"])
    assert max(map(len, lines)) <= 80
    text = "".join(lines)
    assert (text.count("k"), text.count("0.123")) == (101, 1)
    assert text.count("c") == 50 + 2


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert table_lines(["key"], [["a\x1b[2J\nb"], ["[red]x[/red]"]]) == ["key", "a\\x1b[2J\\nb", "[red]x[/red]"]


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    lines = table_lines(["key"], [["k" * 60]])
    assert {len(line) for line in lines[2:-1]} == {40}
    assert set(lines[1]) == {"─"}


def test_a_row_is_one_line_in_a_file_if_asked() -> None:
    name = "efficientnet_lite0-a4a9af10" * 5
    assert len(table_lines(["job", "state"], [[name, "finished"]])) > 2
    (_, line) = table_lines(["job", "state"], [[name, "finished"]], breaks_in_files=False)
    assert line.split() == [name, "finished"]
