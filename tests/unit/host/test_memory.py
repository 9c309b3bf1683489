"""memory.py: the sizes of /proc/meminfo, and the limit of a container."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.host.memory import describe_memory, usable_memory


def test_memory_of_a_container(tmp_path: Path) -> None:
    assert "not known" in describe_memory(tmp_path)
    assert usable_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")
    assert describe_memory(tmp_path) == "8.0 GiB, 4.0 GiB available"
    assert usable_memory(tmp_path) == 8 << 30
    (tmp_path / "sys" / "fs" / "cgroup").mkdir(parents=True)
    (tmp_path / "sys" / "fs" / "cgroup" / "memory.max").write_text(f"{2 << 30}\n")
    assert describe_memory(tmp_path).endswith(", of which this container may use 2.0 GiB")
    assert usable_memory(tmp_path) == 2 << 30
