"""What a run tells: the per-step line in its fixed shape, JSON lines beside it, and the versions of everything that ran."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import platform
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "Pillow", "simplejpeg", "pyarrow", "onnxruntime", "onnxruntime-gpu", "onnxruntime-ep-openvino")


def step_line(total_s: float, wait_s: float, compute_s: float, images: int) -> str:
    """The line of one step: seconds since the previous line, shares of waiting for data and of computing, images/s."""
    total_s = max(total_s, 1e-9)
    return (
        f"Total {total_s:.3f} sec.   Preprocessing {wait_s:.3f} sec ({100 * wait_s / total_s:.1f}%).   "
        f"Compute {compute_s:.3f} sec ({100 * compute_s / total_s:.1f}%).   {images / total_s:.1f} images/sec."
    )


class EventLog:
    """One JSON object a line, each with the time; every line is on disk's way before the next thing happens."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("a", buffering=1)

    def write(self, event: Any) -> None:
        """Append one event: a frozen dataclass, its class as the kind."""
        self.note(type(event).__name__, **asdict(event))

    def note(self, kind: str, **facts: Any) -> None:
        """Append a line of another kind. Raises OSError that names the file."""
        try:
            self._file.write(json.dumps({"time": round(time.time(), 3), "kind": kind, **facts}) + "\n")
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a row holds, as far as they are installed."""
    from bulkinfer import __version__

    found = {"bulkinfer": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def processor_vendor() -> str:
    """The processor's vendor as it names itself, such as AuthenticAMD; the architecture where the system tells none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(named, platform.machine())


def processor_features() -> frozenset[str]:
    """What the processor can do, in the system's words, such as amx_bf16."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(told, []))


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far.

    From /proc: getrusage's figure is inherited over fork and exec, and would be the launcher's where that is larger.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_seconds() -> float:
    """User and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class PlainHandler(logging.Handler):
    """Prints each record as a plain line: warnings and errors on stderr, everything else on stdout.

    A stream that cannot be written to raises OSError: a full disk is not swallowed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line and flush it."""
        print(record.getMessage(), file=sys.stderr if record.levelno >= logging.WARNING else sys.stdout, flush=True)


def print_log_lines() -> None:
    """Install the handler through which a command prints what the library logs; a second call changes nothing."""
    log = logging.getLogger("bulkinfer")
    if not any(isinstance(handler, PlainHandler) for handler in log.handlers):
        log.addHandler(PlainHandler())
    log.setLevel(logging.INFO)
    log.propagate = False  # absl gives the root logger a handler of its own


def make_printing_safe() -> None:
    """A file name that the terminal's encoding cannot show is escaped, never an exception; so is a stream that is closed."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 -- for as long as the process lives
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 -- the same
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
