"""screen.py: plain lines into a file, a view below them on a terminal, a line on stderr now and then without one."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from bulkinfer.host.console import say
from bulkinfer.host.screen import Screen
from bulkinfer.host.status import RUNNING, Status, WorkerStatus

from tests.logged import logged
from tests.terminal import Display

STATUS = Status(done=5, total=10, images_per_s=2.5, workers={0: WorkerStatus(RUNNING)})
LINE = "running: 5 of 10 pictures (50.0 %), 2.5 images/sec, 2 s left, no errors"


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        """What is seen on it."""
        display = Display(80)
        display.write(self.getvalue().replace("\n", "\r\n"))
        return display.text()


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stdout from now on. Not a fixture: pytest replaces stdout between those and the test."""
    found = Terminal()
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


def test_without_being_asked_for_there_is_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that calls launch() in a terminal sees what it logs, and nothing else."""
    terminal = terminal_of(monkeypatch)
    lines = list[str]()
    with Screen(lambda: STATUS, line_s=0.0) as screen:
        logged(lines, screen.line, "Total 1.000 sec.")
        screen.tick(1e9)
    assert lines == ["Total 1.000 sec."]
    assert terminal.getvalue() == "Total 1.000 sec.\n"  # by the handler that tests install


def test_into_a_file_go_plain_lines_and_progress_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(lambda: STATUS, shows_progress=True) as screen:
        screen.line("Total 1.000 sec.")
        assert capsys.readouterr() == ("Total 1.000 sec.\n", ""), "it is not due yet"
        for now_s in (1e9, 1e9 + 29, 1e9 + 31):
            screen.tick(now_s)
    assert capsys.readouterr() == ("", f"{LINE}\n{LINE}\n")


def test_the_line_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not depend on steps that end."""
    came = threading.Event()

    class Errors(io.StringIO):
        def write(self, text: str) -> int:
            assert text in (f"{LINE}\n", "")
            came.set()
            return len(text)

    monkeypatch.setattr(sys, "stderr", Errors())
    with Screen(lambda: STATUS, shows_progress=True, line_s=0.0):
        assert came.wait(60)


def test_a_stderr_that_cannot_be_written_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    kept: list[Status] = []
    with Screen(lambda: STATUS, shows_progress=True, keep=kept.append) as screen:
        monkeypatch.setattr(sys, "stderr", Full())
        screen.tick(1e9)
    assert kept[-1] == STATUS


def test_the_status_is_kept_every_two_seconds() -> None:
    kept: list[Status] = []
    screen = Screen(lambda: STATUS, keep=kept.append)
    counts = []
    for now_s in (100.0, 100.5, 101.9, 102.0, 103.9, 104.0):
        screen.tick(now_s)
        counts.append(len(kept))
    assert counts == [1, 1, 1, 2, 2, 3]


def test_what_all_workers_say_alike_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(lambda: STATUS) as screen:
        for worker in range(3):
            screen.log(f"worker {worker}: CPU runs 5 nodes")
        screen.log("worker 3: OpenVINO runs 5 nodes")
    assert capsys.readouterr().out == "worker 0: CPU runs 5 nodes\nworker 3: OpenVINO runs 5 nodes\n"


def test_a_terminal_shows_lines_above_a_view(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = terminal_of(monkeypatch)
    line = "Total 1.000 sec.   [bold]more than eighty characters[/bold] stay in one piece and are not taken for markup"
    with Screen(lambda: STATUS, shows_progress=True, line_s=0.0) as screen:
        screen.line(line)
        say("worker 0 ended by signal 9", is_error=True)
        screen.tick(1e9)
        assert terminal.shown().startswith(f"{line[:80]}\n{line[80:]}\n50.0 % ")
        assert terminal.shown().splitlines()[3] == "5 of 10 pictures   2.5 images/sec   2 s left"
    assert terminal.shown() == f"{line[:80]}\n{line[80:]}", "the view is gone at the end"
    assert capsys.readouterr().err == "worker 0 ended by signal 9\n", "and progress needs no line"
    say("as before")
    assert terminal.getvalue().endswith("as before\n")


def test_it_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    status = Status(total=10, workers={0: WorkerStatus("starting")})
    with Screen(lambda: status, shows_progress=True):
        assert "0 of 10 pictures   starting workers" in terminal.shown()


def test_an_error_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with pytest.raises(KeyboardInterrupt), Screen(lambda: STATUS, shows_progress=True):
        raise KeyboardInterrupt
    assert terminal.shown() == ""


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("TERM", "unknown")])
def test_a_terminal_that_cannot_draw_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv(name, value)
    with Screen(lambda: STATUS, shows_progress=True) as screen:
        screen.tick(1e9)
    assert terminal.getvalue() == ""
    assert capsys.readouterr().err == f"{LINE}\n"
