"""limits.py: the sentence about a limit that was reached names it."""

from __future__ import annotations

import resource

import pytest
from bulkinfer.host.limits import no_memory, no_thread

INFINITE = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_c54_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: (307200 * 1024, 307200 * 1024), resource.RLIMIT_NPROC: (500, 500)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[kind])
    assert no_memory().startswith("out of memory (the limit is 314,572,800 bytes): ")
    assert no_thread() == (
        "out of memory for another thread (the limit is 314,572,800 bytes): raise the limit of this shell (ulimit -v)"
    )
    limits[resource.RLIMIT_AS] = INFINITE
    assert no_memory().startswith("out of memory: ")
    assert no_thread().startswith("no further thread can be started (the limit is 500 processes and threads): ")
    limits[resource.RLIMIT_NPROC] = INFINITE
    assert no_thread().startswith("no further thread can be started: ")
