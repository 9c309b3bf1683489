"""console.py: the per-step line that other programs parse, and what a command prints."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulkinfer.host.console import (
    data_on_stdout,
    make_printing_safe,
    naming_command,
    print_log_lines,
    printing_within,
    say,
    step_line,
)
from hypothesis import given
from hypothesis import strategies as st

NUMBER = r"(\d+(?:\.\d+)?)"
REFERENCE = re.compile(
    rf"Total {NUMBER} sec\.   Preprocessing {NUMBER} sec \({NUMBER}%\)\.   "
    rf"Compute {NUMBER} sec \({NUMBER}%\)\.   {NUMBER} images/sec\."
)


@given(st.floats(0, 1e5), st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**6))
def test_the_shape_of_a_line(total_s: float, wait: float, compute: float, images: int) -> None:
    match = REFERENCE.fullmatch(step_line(total_s, wait * total_s, compute * total_s, images))
    assert match
    told = [float(number) for number in match.groups()]
    assert told[0] == pytest.approx(total_s, abs=0.0006)
    if total_s > 0.01:
        assert told[1:5] == pytest.approx([wait * total_s, 100 * wait, compute * total_s, 100 * compute], abs=0.06)
        assert told[5] == pytest.approx(images / total_s, abs=0.06)


def test_a_line_by_hand() -> None:
    assert step_line(10, 0.5, 9.25, 1234) == (
        "Total 10.000 sec.   Preprocessing 0.500 sec (5.0%).   Compute 9.250 sec (92.5%).   123.4 images/sec."
    )


def test_a_command_prints_what_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_log_lines()
    log = logging.getLogger("bulkinfer")
    log.info("one")
    log.warning("two")
    assert capsys.readouterr() == ("one\n", "two\n")
    with naming_command("bulkinfer run"):
        log.info("one")
        log.warning("two")
        log.error("a traceback")
    log.warning("three")
    assert capsys.readouterr() == ("one\n", "bulkinfer run: two\na traceback\nthree\n")


def test_a_command_within_a_command_leaves_the_printing_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    print_log_lines()

    @contextlib.contextmanager
    def marked(mark: str) -> Iterator[None]:
        sys.stdout.write(mark)
        yield

    with naming_command("outer"), printing_within(lambda: marked("o")), data_on_stdout(False):
        with naming_command("inner"), printing_within(lambda: marked("i")), data_on_stdout(True):
            logging.getLogger("bulkinfer").warning("one")
            say("two")
        logging.getLogger("bulkinfer").warning("three")
        say("four")
    say("five")
    assert capsys.readouterr() == ("iioofour\nfive\n", "inner: one\ntwo\nouter: three\n")


def test_names_that_the_terminal_cannot_show_are_escaped() -> None:
    code = "; ".join(
        [
            "from bulkinfer.host.console import *",
            "make_printing_safe()",
            "print_log_lines()",
            "log = logging.getLogger('bulkinfer')",
            "log.info('é\\udce9')",
            "log.warning('\\u65e5')",
        ]
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=300,
                          env={"PYTHONIOENCODING": "ascii"})  # fmt: skip
    assert (told.stdout, told.stderr) == (b"\\xe9\\udce9\n", b"\\u65e5\n")


def test_streams_that_are_no_terminal_of_ours_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    strangers = object(), object()
    monkeypatch.setattr(sys, "stdout", strangers[0])
    monkeypatch.setattr(sys, "stderr", strangers[1])
    make_printing_safe()
    assert (sys.stdout, sys.stderr) == strangers


def test_c50_what_is_printed_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_log_lines()
    hostile = "a\x1b[2Jb\rc\nd\u202ee\x9bf"
    say(hostile)
    logging.getLogger("bulkinfer").info(hostile)
    logging.getLogger("bulkinfer").warning("%s", hostile)
    safe = "a\\x1b[2Jb\\rc\\nd\\u202ee\\x9bf\n"
    assert capsys.readouterr() == (safe * 2, safe)
    say(line := step_line(10, 0.5, 9.25, 1234))
    assert capsys.readouterr().out == f"{line}\n"


def test_c54_a_stream_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left on device: 'stdout'"):
            say("x")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
