"""A loader process: decodes pictures for some of a worker's loader threads, into batches that lie in memory of both.

    python -P -m bulkinfer.worker.loader_process SETUP READ_FD:WRITE_FD:MARK...

It has a thread for each pair of pipes, which sets that mark of the worker's. It ends with the worker, however that ends: the
kernel kills it, and its pipes close.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from bulkinfer.errors import RecordError, first_line
from bulkinfer.host.process_setup import die_with_parent, hide_pandas
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.pillow_warnings import take_counts
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Array, Fault, Record
from bulkinfer.worker.in_flight import InFlight, Mark
from bulkinfer.worker.loader import Limits, load_record
from bulkinfer.worker.loader_messages import READY, Pipes, Reply, Request
from bulkinfer.worker.metrics import Meter


@dataclass(frozen=True, slots=True)
class Setup:
    """How every picture is loaded, for the worker with the process id `parent`.

    `batches` and `marks` are descriptors of shared memory: its batches, behind them a byte that is not 0 once it stops, and the
    marks of its `num_marks` loader threads.
    """

    recipe: Recipe
    limits: Limits
    parent: int
    batches: int
    marks: int
    num_marks: int

    def encode(self) -> str:
        """As one word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, word: str) -> Setup:
        """The inverse of encode."""
        value = json.loads(word)
        return cls(**{**value, "recipe": Recipe(**value["recipe"]), "limits": Limits(**value["limits"])})


def serve(pipes: Pipes, mark: Mark, setup: Setup, pixels: Array) -> None:
    """Load what is asked for into `pixels`, the memory of all batches, until the pipe closes."""
    meter = Meter()
    pipes.send(READY)
    while (request := pipes.receive()) is not None:
        pipes.send(load(Request.decode(request), mark, setup, pixels, meter).encode())


def load(request: Request, mark: Mark, setup: Setup, pixels: Array, meter: Meter) -> Reply:
    """Load pictures into their slots, and say what became of each, or of the first ones if the worker stops meanwhile."""
    recipe, reply, offset = setup.recipe, Reply(), request.offset
    size = recipe.height * recipe.width * 3
    for number, record in enumerate(_records(request), request.number):
        if pixels[-1]:  # the worker stops
            break
        mark.set(request.partition, number, number + 1)
        slot_HWC = pixels[offset : offset + size].reshape(recipe.height, recipe.width, 3)
        try:
            reply.loaded.append(load_record(record, recipe, setup.limits, slot_HWC, meter))
        except RecordError as error:
            reply.loaded.append((error.stage, error.message))
        except Exception as error:  # a limit of the machine, or a bug: the worker reports it as its own
            traceback.print_exc()
            reply.bug = f"{type(error).__name__}: {first_line(error)}"
            break
        offset += size
    mark.clear()
    reply.seconds, reply.warned = meter.take(), take_counts()
    return reply


def _records(request: Request) -> Iterator[Record]:
    """The records of a request."""
    for place in request.places:
        yield Record(0, b"", place)
    for content in request.contents:
        fault = Fault("read", "the worker could not read it") if content is None else None
        yield Record(0, b"", b"", fault=fault, ahead=None if content is None else partial(bytes, content))


def main(argv: list[str]) -> None:
    """Serve all connections until the worker ends."""
    setup = Setup.decode(argv[0])
    for number in STOP_SIGNALS:  # the launcher decides when to stop, and ends the worker
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(setup.parent)
    hide_pandas()
    prepare_decoder()
    pixels = np.frombuffer(mmap.mmap(setup.batches, 0), np.uint8)
    marks = InFlight(setup.num_marks, 0, setup.marks).loaders

    def work(word: str) -> None:
        reading, writing, mark = map(int, word.split(":"))
        try:
            serve(Pipes(reading, writing), marks[mark], setup, pixels)
        except BaseException:  # without this thread one of the worker's would wait for ever
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=work, args=(word,), daemon=True) for word in argv[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
