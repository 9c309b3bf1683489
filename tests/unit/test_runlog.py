"""runlog.py: the line that others' parsers know, the JSON lines, and what is told about the process."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.runlog import EventLog, cpu_seconds, peak_memory_bytes, say, step_line, versions, warn

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
    path = tmp_path / "worker-0.jsonl"
    first = EventLog(path)
    first.write("ready", load_s=0.5, name="é \n \udce9")
    (event,) = map(json.loads, path.read_text().splitlines())
    assert abs(event.pop("time") - time.time()) < 5
    assert event == {"event": "ready", "load_s": 0.5, "name": "é \n \udce9"}
    first.close()
    again = EventLog(path)
    again.write("end")
    again.close()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["ready", "end"]
    with pytest.raises(ValueError, match="closed"):
        again.write("late")


def test_versions_are_those_of_installed_packages() -> None:
    import numpy
    import PIL

    found = versions()
    assert (found["numpy"], found["Pillow"]) == (numpy.__version__, PIL.__version__)
    assert {"bulkinfer", "python", "pyarrow", "onnxruntime"} <= set(found)
    assert "onnxruntime-gpu" not in found, "a package that is not there is left out"


def test_process_figures() -> None:
    before = cpu_seconds()
    assert sum(range(200_000)) > 0
    assert before <= cpu_seconds() < 1e6
    assert 10_000_000 < peak_memory_bytes() < 1 << 40


def test_say_and_warn(capsys: pytest.CaptureFixture[str]) -> None:
    say("one")
    warn("two")
    assert capsys.readouterr() == ("one\n", "two\n")
