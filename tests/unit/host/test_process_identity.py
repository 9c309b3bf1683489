"""process_identity.py: a process is identified for good, and so is its process table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulkinfer.host import process_identity as processes
from bulkinfer.host.process_identity import Owner, is_running, process_start_ticks, this_table


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that is not this one."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def test_start_ticks_name_a_process_for_good(child: subprocess.Popen[bytes]) -> None:
    ticks = process_start_ticks(child.pid)
    assert ticks is not None
    mine = process_start_ticks(os.getpid())
    assert mine is not None
    assert mine <= ticks == process_start_ticks(child.pid)
    child.communicate()
    assert process_start_ticks(child.pid) is None


def test_start_ticks_of_a_process_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = " ".join(str(n) for n in range(4, 53))
    (tmp_path / "stat").write_text(f"77 (a) b) 9 (c) S {fields}")
    monkeypatch.setattr(processes, "Path", lambda _: tmp_path / "stat")
    assert process_start_ticks(77) == 22


def test_a_process_is_gone_when_its_number_is_anothers_or_nobodys(child: subprocess.Popen[bytes]) -> None:
    ticks, table = process_start_ticks(child.pid) or 0, this_table().digest
    assert is_running(child.pid, ticks)
    assert not Owner(table, child.pid, ticks).is_gone
    assert Owner(table, child.pid, ticks - 1).is_gone
    child.communicate()
    assert not is_running(child.pid, ticks)
    assert Owner(table, child.pid, ticks).is_gone


def test_of_another_table_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_table()
    assert here.is_here
    others = [here._replace(**{name: told}) for name in here._fields for told in ("another", None)]
    assert len({here.digest, *(table.digest for table in others)}) == 1 + len(others)
    for table in others:
        assert not table.is_here
        assert not Owner(table.digest, 2**22 + 1, 5).is_gone
    monkeypatch.setattr(processes, "_PIDS", tmp_path / "none")
    assert not this_table().is_here, "what it does not tell may differ"
    assert not Owner(this_table().digest, 2**22 + 1, 5).is_gone
