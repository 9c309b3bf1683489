"""console.py: the per-step line that other programs parse, what a command prints, and the JSON lines."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bulkinfer.host.console import EventLog, make_printing_safe, print_log_lines, step_line
from bulkinfer.worker.protocol import Died, Ended, Totals
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


def test_events_are_lines_of_json_and_are_there_at_once(tmp_path: Path) -> None:
    path, before = tmp_path / "worker-0.jsonl", time.time()
    first = EventLog(path)
    first.note("modules", names=["é \n \udce9"])
    first.write(Ended(Totals({}, 5, 0.5), {"odd": 2}))
    note, event = map(json.loads, path.read_text().splitlines())
    assert before - 0.01 < note.pop("time") <= event.pop("time") < time.time() + 0.01
    assert note == {"kind": "modules", "names": ["é \n \udce9"]}
    totals = {"metrics": {}, "peak_memory_bytes": 5, "cpu_s": 0.5}
    assert event == {"kind": "Ended", "totals": totals, "decoder_warnings": {"odd": 2}}
    first.close()
    again = EventLog(path)
    again.write(Died("signal 9", True))
    again.close()
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["modules", "Ended", "Died"]
    with pytest.raises(ValueError, match="closed"):
        again.note("late")


def test_a_command_prints_what_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_log_lines()
    log = logging.getLogger("bulkinfer")
    log.info("one")
    log.warning("two")
    assert capsys.readouterr() == ("one\n", "two\n")


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


def test_a_full_disk_is_told_with_the_file() -> None:
    log = EventLog(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        log.note("anything")
    with pytest.raises(OSError, match="No space left on device"):  # what is still in the buffer
        log.close()
