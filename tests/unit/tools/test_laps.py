"""tools/bench/peer_scripts/laps.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.peer_scripts.laps import Laps, tree_cpu_s

# A process whose child uses half a second of CPU time and then lives on until stdin closes.
_FAMILY = """
import subprocess, sys
child = "import sys, time\\nwhile time.process_time() < 0.5: pass\\nprint(1, flush=True)\\nsys.stdin.read()"
subprocess.run([sys.executable, "-c", child])
"""


def test_the_cpu_time_of_descendants_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", _FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as family:
        assert family.stdout is not None
        assert family.stdout.readline() == b"1\n"
        alone, with_me = tree_cpu_s(family.pid), tree_cpu_s(os.getpid())
        assert family.stdin is not None
        family.stdin.close()
        family.wait()
    assert alone >= 0.4  # in ticks of the system
    assert with_me > alone


def test_the_first_batch_is_outside(tmp_path: Path) -> None:
    laps = Laps()
    laps.done(["/x/0.jpg", "/x/1.jpg"], [3, 4])
    laps.done(["/x/2.jpg"], [5])
    laps.write({"result": str(tmp_path / "result.json")}, num_workers=2)
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["answers"] == {"0.jpg": 3, "1.jpg": 4, "2.jpg": 5}
    assert found["pictures"] == 1
    assert found["seconds"] > 0
    assert found["cpu_s"] >= 0
    assert found["facts"] == {"num_workers": 2}


def test_nothing_finished_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Laps().write({"result": str(tmp_path / "result.json")})
