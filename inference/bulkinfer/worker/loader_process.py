"""A loader process: decodes pictures for some of a worker's loader threads, into batches that lie in memory of both.

    python -P -m bulkinfer.worker.loader_process PARENT_PID MEMORY_FD TASK SOCKET_FD...

It has one thread for each socket. It ends with the worker, however that ends: the kernel kills it, and its sockets close.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bulkinfer.errors import RecordError, first_line
from bulkinfer.host.process_setup import die_with_parent
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.pillow_warnings import take_counts
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Record
from bulkinfer.worker.loader import Limits, load_record
from bulkinfer.worker.loader_messages import READY, Reply, decode_request, encode_reply, receive, send
from bulkinfer.worker.metrics import Meter


@dataclass(frozen=True, slots=True)
class LoadTask:
    """How every picture is loaded."""

    recipe: Recipe
    limits: Limits

    def encode(self) -> str:
        """As one word of a command line."""
        return json.dumps({"recipe": asdict(self.recipe), "limits": asdict(self.limits)})

    @classmethod
    def decode(cls, word: str) -> LoadTask:
        """The inverse of encode."""
        value = json.loads(word)
        return cls(Recipe(**value["recipe"]), Limits(**value["limits"]))


def serve(connection: socket.socket, task: LoadTask, pixels: np.ndarray[Any, Any]) -> None:
    """Load what is asked for into `pixels`, the shared memory, until the connection closes."""
    meter = Meter()
    send(connection, READY)
    while (request := receive(connection)) is not None:
        offset, path = decode_request(request)
        send(connection, encode_reply(load(path, offset, task, pixels, meter)))


def load(path: bytes, offset: int, task: LoadTask, pixels: np.ndarray[Any, Any], meter: Meter) -> Reply:
    """Load one picture into its slot, and say what became of it."""
    recipe, reply = task.recipe, Reply()
    size = recipe.height * recipe.width * 3
    slot_HWC = pixels[offset : offset + size].reshape(recipe.height, recipe.width, 3)
    try:
        reply.facts = load_record(Record(0, b"", path), recipe, task.limits, slot_HWC, meter)
    except RecordError as error:
        reply.error = (error.stage, error.message)
    except Exception as error:  # a limit of the machine, or a bug: the worker reports it as its own
        traceback.print_exc()
        reply.bug = f"{type(error).__name__}: {first_line(error)}"
    reply.seconds, reply.warned = meter.take(), take_counts()
    return reply


def main(argv: list[str]) -> None:
    """Serve all connections until the worker ends."""
    parent, memory, word, *descriptors = argv
    for number in STOP_SIGNALS:  # the launcher decides when to stop, and ends the worker
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(int(parent))
    prepare_decoder()
    task, pixels = LoadTask.decode(word), np.frombuffer(mmap.mmap(int(memory), 0), np.uint8)

    def work(descriptor: int) -> None:
        try:
            with socket.socket(fileno=descriptor) as connection:
                serve(connection, task, pixels)
        except BaseException:  # without this thread one of the worker's would wait for ever
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=work, args=(int(descriptor),), daemon=True) for descriptor in descriptors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
