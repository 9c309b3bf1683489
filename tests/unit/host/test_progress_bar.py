"""progress_bar.py: plain lines into a file, a bar below them on a terminal."""

from __future__ import annotations

import io
import sys

import pytest
from bulkinfer.host.progress_bar import Screen

from tests.logged import logged


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_without_being_asked_for_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that calls launch() in a terminal sees what it logs, and nothing else."""
    terminal, lines = Terminal(), list[str]()
    monkeypatch.setattr(sys, "stdout", terminal)
    with Screen(40) as screen:
        logged(lines, screen.line, "Total 1.000 sec.")
        screen.advance(10)
    assert lines == ["Total 1.000 sec."]
    assert terminal.getvalue() == "Total 1.000 sec.\n"  # by the handler that tests install


def test_into_a_file_go_plain_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(10, shows_bar=True) as screen:
        screen.line("Total 1.000 sec.")
        screen.advance(5)
    assert capsys.readouterr().out == "Total 1.000 sec.\n"


def test_what_all_workers_say_alike_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(None, shows_bar=True) as screen:
        for worker in range(3):
            screen.log(f"worker {worker}: CPU runs 5 nodes", worker=worker)
        screen.log("worker 3: OpenVINO runs 5 nodes", worker=3)
    assert capsys.readouterr().out == "worker 0: CPU runs 5 nodes\nworker 3: OpenVINO runs 5 nodes\n"


def test_a_terminal_shows_lines_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    line = "Total 1.000 sec.   [bold]more than eighty characters[/bold] stay in one piece and are not taken for markup"
    with Screen(40, shows_bar=True) as screen:
        screen.advance(10)
        screen.line(line)
        screen.advance(20)
    shown = terminal.getvalue()
    assert line in shown
    assert "30/40" in shown
    assert "images/sec" in shown


@pytest.mark.parametrize("total", [None, 0])
def test_without_a_total_there_is_no_bar(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with Screen(total, shows_bar=True) as screen:
        screen.line("only this")
        screen.advance(10)
    assert terminal.getvalue() == "only this\n"
