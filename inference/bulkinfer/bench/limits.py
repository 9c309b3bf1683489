"""What this machine can do at most: products of matrices, copies in memory, and libjpeg-turbo alone, with nothing beside them.

    python -m bulkinfer.bench.limits PARENT_PID

reads a question as JSON from stdin, measures in this process, and answers with the figures.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError, RecordError
from bulkinfer.host.isolated_call import answer, ask
from bulkinfer.images.jpeg import turbo_pixels
from bulkinfer.records.place import PlaceAsJson, place_as_json, place_from_json
from bulkinfer.records.read_place import read_place
from bulkinfer.runtime.providers import SessionSpec, entry_of
from bulkinfer.runtime.session import Session, warm_up
from bulkinfer.types import Place

_MEASURE_S = 1.0
_ROWS = 1024  # of the matrices that are multiplied
_COPIED_BYTES = 128 << 20  # more than the caches hold
_BYTES_OF = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a picture costs, and what the machine does at most; a figure is 0 where it could not be taken.

    `operations` and `moved_bytes` are those of a picture (see arithmetic.Work), `peak` is operations per second of products of
    matrices in the precision, library and threads of the session, `copied` bytes per second read and written. `turbo_cpu_s` is
    the CPU time in which libjpeg-turbo alone decodes a picture, a mean over the JPEGs at hand.
    """

    operations: float = 0.0
    moved_bytes: float = 0.0
    peak: float = 0.0
    copied: float = 0.0
    turbo_cpu_s: float = 0.0


def measure_limits(session: SessionSpec, cores: Sequence[int], pictures: Sequence[Place], config: LaunchConfig) -> Limits | str:
    """The limits for a session on these cores, and for the JPEGs among `pictures`; a sentence if they cannot be measured."""
    question = {
        "session": asdict(session),
        "cores": list(cores),
        "pictures": [place_as_json(place) for place in pictures],
        "most": [config.max_file_bytes, config.max_pixels],
    }
    found = ask("bulkinfer.bench.limits", question, "the limits of this machine")
    return found if isinstance(found, str) else Limits(**found)


def _find(question: dict[str, Any]) -> dict[str, float]:
    from bulkinfer.model.arithmetic import count_work  # brings onnx, for which the command that asks has no use

    os.sched_setaffinity(0, question["cores"])
    session = SessionSpec(**question["session"])
    try:
        work = count_work(Path(session.graph))
    except ValueError:  # sizes that the graph leaves open
        operations, moved = 0.0, 0.0
    else:
        operations, moved = work.operations, work.numbers * _BYTES_OF[session.precision]
    turbo_cpu_s = _turbo(question["pictures"], *question["most"])
    return asdict(Limits(operations, moved, _peak(session), _copied(len(question["cores"])), turbo_cpu_s))


def _peak(session: SessionSpec) -> float:
    from bulkinfer.model.arithmetic import OPERATIONS_PER_ROW, write_products

    halves = session.precision == "fp16" and "fp16" in entry_of(session.provider, session.backend).variants
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "products.onnx"
        write_products(path, session.precision, rows=_ROWS, halves=halves)
        try:
            opened = Session(replace(session, graph=str(path)), ["y"])
        except BulkinferError:  # a provider may have no product in this precision
            return 0.0
        return warm_up(opened, session.streams, _MEASURE_S) * OPERATIONS_PER_ROW


def _copied(threads: int) -> float:
    """Bytes per second that all threads together read and write in copying."""
    counts, until = [0] * threads, 0.0

    def copy(index: int) -> None:
        there = np.ones(_COPIED_BYTES // threads, np.uint8)
        here = np.zeros_like(there)
        ready.wait()
        while time.perf_counter() < until:
            np.copyto(here, there)
            counts[index] += 2 * there.nbytes

    ready = threading.Barrier(threads + 1)
    workers = [threading.Thread(target=copy, args=(index,), daemon=True) for index in range(threads)]
    for worker in workers:
        worker.start()
    until = time.perf_counter() + 10 * _MEASURE_S
    ready.wait()
    start = time.perf_counter()
    until = start + _MEASURE_S
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def _turbo(pictures: Sequence[PlaceAsJson], max_file_bytes: int, max_pixels: int) -> float:
    """CPU seconds of one picture in libjpeg-turbo, on one thread; 0 if there is no JPEG that it takes."""
    spent, decoded, start = 0.0, 0, time.perf_counter()
    for place in pictures:
        try:
            data = read_place(place_from_json(place), max_file_bytes)
        except RecordError:
            continue
        begun = time.thread_time()
        if turbo_pixels(data, max_pixels) is not None:
            spent, decoded = spent + time.thread_time() - begun, decoded + 1
        if time.perf_counter() - start > 2 * _MEASURE_S:
            break
    return spent / decoded if decoded else 0.0


if __name__ == "__main__":
    answer(_find, lambda _question: "the limits of this machine")
