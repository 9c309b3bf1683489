"""usage.py: memory and processor time of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bulkinfer.host.usage import cpu_seconds, cpu_ticks, peak_memory_bytes


def test_process_figures() -> None:
    before = cpu_seconds()
    assert sum(range(200_000)) > 0
    assert before <= cpu_seconds() < 1e6
    assert 10_000_000 < peak_memory_bytes() < 1 << 40


def test_peak_memory_is_this_process_s_own() -> None:
    """A worker is started by a larger launcher, whose peak getrusage would give it."""
    block = bytearray(100 << 20)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])
    assert peak_memory_bytes() > len(block)
    code = "from bulkinfer.host.usage import peak_memory_bytes; print(peak_memory_bytes())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300).stdout
    assert 1_000_000 < int(told) < len(block)


def test_peak_memory_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "Name:\tpython\n")
    assert 10_000_000 < peak_memory_bytes() < 1 << 40


def test_other_processes_are_added() -> None:
    code = "block = bytearray(b'x' * (64 << 20)); sum(range(3_000_000)); print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert peak_memory_bytes([other.pid]) - peak_memory_bytes() > 60 << 20
        ticks = cpu_ticks(other.pid)
        assert ticks
        assert cpu_seconds([other.pid]) - cpu_seconds() == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"), abs=0.1)
        other.communicate("\n")
    assert peak_memory_bytes([other.pid]) == pytest.approx(peak_memory_bytes(), rel=0.2), "it has ended"


def test_ticks_grow_with_the_seconds() -> None:
    ticks = cpu_ticks(os.getpid())
    assert ticks is not None
    assert ticks / os.sysconf("SC_CLK_TCK") == pytest.approx(cpu_seconds(), abs=0.1)
    assert cpu_ticks(2**22 + 1) is None, "no process has this number"
