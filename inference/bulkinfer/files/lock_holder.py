"""Who holds a lock, as the content of the lock says it."""

from __future__ import annotations

import json
import os
import secrets
from datetime import UTC, datetime
from typing import TypedDict

from bulkinfer.files.atomic import FORMAT
from bulkinfer.host.process_identity import Table, process_start_ticks, this_table


class Holder(TypedDict):
    """Who holds a lock: the fields of its process table, and its process. Every lock that is taken gets a new `token`."""

    host: str
    boot_id: str | None
    pids: str | None
    pid: int
    start_ticks: int | None
    started: str
    token: str


def new_holder() -> Holder:
    """This process, with a new token."""
    pid, token = os.getpid(), secrets.token_hex(8)
    table = this_table()
    return Holder(host=table.host, boot_id=table.boot_id, pids=table.pids, pid=pid, start_ticks=process_start_ticks(pid),
                  started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", token=token)  # fmt: skip


def lock_text(holder: Holder, **more: int) -> bytes:
    """The content of a lock, with further fields."""
    return json.dumps({"format": FORMAT, **holder, **more}).encode() + b"\n"


def is_here(holder: Holder) -> bool:
    """True if the holder's process can be looked up here: its pid is provably of the process table of this process."""
    return Table(holder["host"], holder["boot_id"], holder["pids"]).is_here
