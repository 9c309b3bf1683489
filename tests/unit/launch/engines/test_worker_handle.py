"""worker_handle.py: what a worker that died left as its last words; test_local.py tests the rest with fake workers."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from bulkinfer.launch.engines.worker_handle import WorkerHandle
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.protocol import Stop


def handle(log: Path) -> WorkerHandle:
    """A worker that has ended and left `log`."""
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, bufsize=0)
    marks = shared(1, 1)
    in_flight = InFlight(1, 1, marks)
    os.close(marks)
    reading, writing = os.pipe()
    os.close(writing)
    return WorkerHandle(0, process, reading, in_flight, log)


def test_c54_the_end_of_a_log_that_could_not_be_written(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.touch()
    worker = handle(log)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no disk takes a byte more
    try:
        assert worker.last_words() == f"its log cannot be written: File too large: {log}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.read_bytes() == b""
    assert worker.last_words() == f"its log {log} is empty"
    log.write_text("one\ntwo\nthree\nfour\n")
    assert worker.last_words() == "the end of its log: two | three | four"
    log.write_text("Traceback (most recent call last):\nMemoryError\n")
    assert worker.last_words().startswith("out of memory")
    assert worker.close() == 0


def test_a_command_for_a_worker_that_is_being_reaped_goes_nowhere(tmp_path: Path) -> None:
    """A signal may come while close() waits for the process, and its handler stops all workers."""
    worker = handle(tmp_path / "worker-0.log")
    assert worker.close() == 0
    worker.send(Stop())
    worker.kill()
    assert worker.process.stdin is not None
    assert worker.process.stdin.closed
