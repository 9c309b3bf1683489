"""One worker process, as the launcher handles it: start, send, watch, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bulkinfer.errors import os_error_sentence
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.host.limits import exhausted
from bulkinfer.host.usage import cpu_ticks
from bulkinfer.types import Step
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.protocol import ZEROS_FIRST, Command, encode

_START_S = 60.0  # a process that starts may have to wait long for a busy disk or host


@dataclass
class WorkerHandle:
    """A running worker process and what it was given."""

    index: int
    process: subprocess.Popen[bytes]
    reports: int  # the launcher's end of its pipe
    in_flight: InFlight
    log: Path
    ready: bool = False
    ended: bool = False  # it was sent End
    held: list[Step] = field(default_factory=list)
    unread: bytes = b""
    ended_for: str = ""  # why the launcher ended it; empty: it did not
    loading: list[Step] = field(default_factory=list)  # after close(): what its loader threads were working on,
    running: list[Step] = field(default_factory=list)  # and what its streams were
    _seen: object = None  # in_flight, or its processor time, at the last change
    _still_s: float = 0.0  # how long it has been seen without a change

    def send(self, command: Command) -> None:
        """Send one command. A worker that is just dying does not read it; its end of file will follow, or has been seen."""
        assert self.process.stdin is not None
        if self.process.stdin.closed:  # a signal came while close() waits for the process
            return
        try:
            self.process.stdin.write(encode(command).encode() + b"\n")
        except BrokenPipeError:
            return

    def is_stalled(self, watched_s: float, timeout_s: float) -> bool:
        """True if the worker had work (or was asked to end) and made no progress for `timeout_s`; called repeatedly.

        A worker that is not ready yet makes progress as long as it uses processor time, however long its network takes to
        load; it gets at least a minute. `watched_s` is the time since the last call in which the launcher itself was running.
        """
        seen = self.in_flight.snapshot() if self.ready else cpu_ticks(self.process.pid)
        idle = self.ready and not (self.held or self.ended)
        if idle or seen != self._seen:
            self._seen, self._still_s = seen, 0.0
            return False
        self._still_s += watched_s
        return self._still_s >= (timeout_s if self.ready else max(timeout_s, _START_S))

    def lines(self, chunk: bytes) -> list[bytes]:
        """The reports that are complete with a further chunk of what it wrote."""
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        return lines

    def kill(self) -> None:
        """End it at once; its end of file will follow."""
        self.process.kill()

    def end(self, reason: str) -> None:
        """Kill it, and keep the `reason` for messages."""
        self.ended_for = reason
        self.kill()

    def how(self, code: int) -> str:
        """How it ended, for messages, as in "ended by signal 9 (SIGKILL)"; `code` is the exit code that close() returned."""
        if self.ended_for:
            return self.ended_for
        if code >= 0:
            return f"ended by exit code {code}"
        try:
            return f"ended by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:  # a real-time signal has no name
            return f"ended by signal {-code}"

    def last_words(self) -> str:
        """The end of its log, for messages; why there is none, if it could not write one."""
        if lines := self.log.read_text(errors="replace").splitlines()[-3:]:
            return exhausted(lines[-1]) or f"the end of its log: {' | '.join(lines)}"
        try:
            with self.log.open("ab") as log:
                log.write(b"\n")
        except OSError as error:
            return f"its log cannot be written: {os_error_sentence(OSError(error.errno, error.strerror, str(self.log)))}"
        return f"its log {self.log} is empty"

    def close(self) -> int:
        """Close the launcher's ends of the pipes and reap the process; returns its exit code (negative: the signal)."""
        os.close(self.reports)
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait()
        self.loading, self.running = self.in_flight.loading(), self.in_flight.running()
        self.in_flight.close()
        return code


def start_worker(run_file: Path, index: int, plan: ThreadPlan, cores: tuple[int, ...], *, takes_over: bool) -> WorkerHandle:
    """Start worker `index` with its cores fixed: a child inherits the affinity of the thread that starts it.

    One that `takes_over` from a dead one runs a batch of zeros before it is ready. The worker ends when this thread does.
    """
    log = run_file.with_name(f"worker-{index}.log")
    reports, written = os.pipe()
    marks = shared(plan.num_workers, plan.streams)
    everyone = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with log.open("ab") as output:
            words = [*([ZEROS_FIRST] if takes_over else []), str(run_file), str(index), str(written), str(marks)]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bulkinfer.worker.process", *words],
                stdin=subprocess.PIPE, bufsize=0, stdout=output, stderr=output, pass_fds=[written, marks],
                start_new_session=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        in_flight = InFlight(plan.num_workers, plan.streams, marks)
    finally:
        os.sched_setaffinity(0, everyone)
        os.close(written)
        os.close(marks)
    return WorkerHandle(index, process, reports, in_flight, log)
