"""in_flight.py: marks of threads, seen by the other process, also after the one that set them has died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from bulkinfer.types import Step
from bulkinfer.worker.in_flight import InFlight, shared


def test_marks_tell_loading_from_running() -> None:
    in_flight = InFlight(2, 1)
    assert (in_flight.loading(), in_flight.running()) == ([], [])
    in_flight.loaders[1].set(3, 7, 8)
    in_flight.streams[0].set(2, 10**12, 10**12 + 6)
    assert in_flight.loading() == [Step(3, 7, 8)]
    assert in_flight.running() == [Step(2, 10**12, 10**12 + 6)]
    in_flight.loaders[1].clear()
    assert in_flight.loading() == []


def test_every_change_shows_also_when_the_same_comes_again() -> None:
    in_flight = InFlight(1, 1)
    seen = [in_flight.snapshot()]
    for _ in range(3):
        in_flight.streams[0].set(0, 0, 6)
        seen.append(in_flight.snapshot())
        in_flight.streams[0].clear()
        seen.append(in_flight.snapshot())
    assert len(set(seen)) == len(seen)
    assert in_flight.snapshot() == seen[-1]


def test_a_dead_process_leaves_its_marks() -> None:
    marks = shared(1, 1)
    code = f"""
import os, signal
from bulkinfer.worker.in_flight import InFlight
InFlight(1, 1, {marks}).loaders[0].set(0, 41, 42)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ours = InFlight(1, 1, marks)
    done = subprocess.run([sys.executable, "-c", code], pass_fds=[marks], check=False, timeout=300)
    os.close(marks)
    assert done.returncode == -signal.SIGKILL
    assert ours.loading() == [Step(0, 41, 42)]
    assert ours.running() == []


def test_finished_pictures_are_counted_by_streams() -> None:
    in_flight = InFlight(2, 2)
    for stream, pictures in ((0, 6), (1, 6), (0, 3)):
        in_flight.streams[stream].set(0, 0, pictures)
        in_flight.streams[stream].clear(pictures)
    in_flight.loaders[0].set(0, 7, 8)
    in_flight.streams[1].set(0, 6, 12)
    assert in_flight.finished() == 15
    assert in_flight.running() == [Step(0, 6, 12)]
