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


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, 40)
    lines = table_lines(["key"], [["k" * 60]])
    assert {len(line) for line in lines[2:-1]} == {40}
    assert set(lines[1]) == {"─"}


JOB = ["efficientnet_lite0-cfef3e01-20261129T192649Z", "incomplete", "1200 of 20000", "17", "11-29 19:26", "890.5 kB"]
HEADER = ["job", "state", "rows", "errors", "last launch", "size"]


@pytest.mark.parametrize("columns", range(10, 130, 3))
def test_no_value_is_cut_on_a_terminal_of_any_width(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    on_terminal(monkeypatch, columns)
    other = ["tiny-cfef3e01", "finished", "-", "-", "2025-01-02", "1.0 kB"]
    lines = table_lines(HEADER, [JOB, other], numbers=HEADER[2:], breaks=False)
    assert all(sum(value in line for line in lines) == 1 for value in JOB)
    if "  state" in lines[1]:
        assert lines[0] == JOB[0], "the name has a line of its own, to be copied"
        assert all(len(line) <= columns for line in lines if ";" in line)
    else:
        assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", range(10, 100, 3))
def test_numbers_are_whole_beside_long_texts(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    on_terminal(monkeypatch, columns)
    lines = table_lines(["key", "score", "class"], [["k" * 40, "0.123", "c" * 30]], numbers=["score"])
    assert (sum("0.123" in line for line in lines), "".join(lines).count("k")) == (
        1,
        41 if "score:" not in "".join(lines) else 40,
    )


def test_wide_characters_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, 20)
    lines = table_lines(["job", "a", "b"], [["名" * 12, "日" * 4, "月" * 4]], breaks=False)
    assert lines == ["名" * 12, "  a: " + "日" * 4, "  b: " + "月" * 4]  # in one line they are 26 characters wide
    lines = table_lines(["job", "a", "b"], [["名" * 12, "日" * 2, "月" * 2]], breaks=False)
    assert lines == ["名" * 12, "  a: 日日; b: 月月"]


def test_a_row_is_one_line_in_a_file_if_asked() -> None:
    name = "efficientnet_lite0-a4a9af10" * 5
    assert len(table_lines(["job", "state"], [[name, "finished"]])) > 2
    (_, line) = table_lines(["job", "state"], [[name, "finished"]], breaks=False)
    assert line.split() == [name, "finished"]
