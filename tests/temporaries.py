"""Names of temporaries whose process is gone, or is another one."""

from __future__ import annotations

from bulkinfer.host.process_identity import Table, this_table

DEAD_PID = 2**22 + 1  # beyond the largest process number


def temporary_name(random: str, pid: int = DEAD_PID, start_ticks: int = 5, table: Table | None = None) -> str:
    """Of a process of this table by default, a dead one."""
    return f"_tmp-{(table or this_table()).digest}-{pid}-{start_ticks}-{random}"
