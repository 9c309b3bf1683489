"""live_view.py: what a terminal shows, whatever its width, and what else is printed."""

from __future__ import annotations

import io
import re
import sys

import pytest
from bulkinfer.host.live_view import LiveView, open_view
from bulkinfer.host.status import RUNNING, Status, WorkerStatus

from tests.terminal import Display

STATUS = Status(
    done=31_204, total=69_000, images_per_s=123.1, errors={"read": 1, "decode": 2}, workers={0: WorkerStatus(RUNNING)},
    waiting_for_pictures=0.12, waiting_for_device=0.7,
)  # fmt: skip

COLOUR = r"\x1b\[[1-9][\d;]*m"


class Terminal(io.StringIO):
    """Says that it is one, and shows what is written to it."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, columns: int = 100) -> None:
        super().__init__()
        self.display, self.raw = Display(columns), ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.raw += text
        self.display.write(text.replace("\n", "\r\n"))
        return len(text)


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stdout from now on. Not a fixture: pytest replaces stdout between those and the test."""
    found = Terminal()
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(LiveView, "_size", lambda _: (found.display.columns, 40))
    return found


def test_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    terminal.display.columns = 80
    LiveView().show(STATUS)
    bar, *lines = terminal.display.text().splitlines()
    assert bar.startswith("45.2 % ━━━")
    assert len(bar) == 79
    assert lines == [
        "31,204 of 69,000 pictures   123.1 images/sec   5 min 8 s left",
        "3 errors (2 decode, 1 read)   12 % waiting for pictures",
        "70 % waiting for the device",
        "workers: 1 running",
    ]


@pytest.mark.parametrize("columns", [2, 7, 12, 20, 33, 80, 200])
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = terminal_of(monkeypatch)
    terminal.display.columns = columns
    view = LiveView()
    for done in (0, 5, 69_000):
        view.show(Status(done=done, total=69_000, images_per_s=1.0, workers=STATUS.workers))
    lines = terminal.display.rows
    assert max(map(len, lines)) <= min(80, columns - 1)
    assert len(terminal.display.text().splitlines()) == len(lines) - 1, "each drawing has replaced the one before"
    view.close()
    assert terminal.display.rows == [""]


@pytest.mark.parametrize(("before", "after"), [(100, 30), (30, 100), (79, 78), (100, 20)])
def test_another_width_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, before: int, after: int) -> None:
    terminal = terminal_of(monkeypatch)
    terminal.display.columns = before
    view = LiveView()
    view.show(STATUS)
    terminal.display.resize(after)
    view.show(STATUS)
    fresh = Terminal(after)
    monkeypatch.setattr(sys, "stdout", fresh)
    LiveView().show(STATUS)
    assert terminal.display.text() == fresh.display.text()


def test_what_shows_nothing_new_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    view = LiveView()
    view.show(STATUS)
    before = terminal.raw
    view.show(STATUS)
    assert terminal.raw == before


def test_nothing_is_erased_before_it_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would flicker: the last sequence erases what is left below."""
    terminal = terminal_of(monkeypatch)
    view = LiveView()
    view.show(STATUS)
    before = len(terminal.raw)
    view.show(Status(done=40_000, total=69_000, images_per_s=123.1, workers=STATUS.workers))
    assert terminal.raw[before:].index("\x1b[J") == len(terminal.raw) - before - len("\x1b[J")


def test_lines_are_printed_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    view = LiveView()
    view.show(STATUS)
    shown = terminal.display.text()
    with view.away():
        print("Total 1.000 sec.")
    assert terminal.display.text() == f"Total 1.000 sec.\n{shown}"
    view.close()
    assert terminal.display.text() == "Total 1.000 sec."


def test_a_heading_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    LiveView().show(STATUS, ["job \x1b[2J: running", "pid 1"])
    assert terminal.display.text().splitlines()[1:3] == ["job \\x1b[2J: running", "pid 1"]


def test_a_low_terminal_shows_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(LiveView, "_size", lambda _: (100, 3))
    LiveView().show(STATUS)
    assert len(terminal.display.text().splitlines()) == 2


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    LiveView().show(STATUS)
    assert re.search(COLOUR, terminal.raw)
    monkeypatch.setenv("NO_COLOR", "1")
    before = len(terminal.raw)
    LiveView().show(STATUS)
    assert "45.2 %" in terminal.raw[before:]
    assert not re.search(COLOUR, terminal.raw[before:])


def test_not_where_nothing_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_of(monkeypatch)
    assert open_view() is not None
    monkeypatch.setenv("TERM", "dumb")
    assert open_view() is None
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert open_view() is None
