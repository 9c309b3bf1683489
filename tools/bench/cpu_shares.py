"""Where the CPU time of the main path goes: decoding, resizing, the runtime, and everything else, by thread CPU clocks.

    python tools/bench/cpu_shares.py --model_name efficientnet_lite0 --data_dir PHOTOS --device cpu --precision fp32

runs infer_launch in this process (--engine inline) with clocks around the calls into the decoder, Pillow's resize, Pillow's
crop (what is to be resized is cut out first), and the session; all options go to infer_launch. The runtime's own threads count
as the runtime. From the first batch to the last: start and warm-up are outside. What the clocks cost counts as everything else.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import simplejpeg
from bulkinfer.commands.infer_launch import main as infer_launch
from bulkinfer.runtime.session import Session
from PIL import Image, ImageFile

_spent: Counter[str] = Counter()
_lock = threading.Lock()
_inside = threading.local()


@dataclass(frozen=True)
class Mark:
    """CPU seconds so far: of the process, of each thread of the interpreter, inside each kind of call."""

    process: float
    threads: dict[int, float]
    inside: Counter[str]


_MARK_S = 0.2  # reading all clocks takes longer than the rows of a batch
_marked = [0.0]
_marks: list[Mark] = []  # the first, and the latest while all threads of the first live


def mark() -> None:
    """Read all clocks."""
    living = [thread.ident for thread in threading.enumerate() if thread.ident]
    now = {ident: time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in living}
    with _lock:
        if not _marks or now.keys() >= _marks[0].threads.keys():
            _marks[1:] = [Mark(time.process_time(), now, _spent.copy())]


def clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its thread's CPU time counted under `name`, once where clocked functions call each other."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "one", False):
            return function(*args, **kwargs)
        _inside.one, start = True, time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            with _lock:
                _spent[name] += time.thread_time() - start
            _inside.one = False

    return call


def marking(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with all clocks read behind it, in the threads that run pictures."""

    def call(network: Session, images: Any) -> Any:
        values = run(network, images)
        now = time.monotonic()
        if now - _marked[0] > _MARK_S and "loader-0" in {thread.name for thread in threading.enumerate()}:
            _marked[0] = now
            mark()
        return values

    return call


def main() -> int:
    simplejpeg.decode_jpeg = clocked("decode", simplejpeg.decode_jpeg)
    ImageFile.ImageFile.load = clocked("decode", ImageFile.ImageFile.load)  # type: ignore[method-assign]
    Image.Image.resize = clocked("resize", Image.Image.resize)  # type: ignore[method-assign]
    Image.Image.crop = clocked("crop", Image.Image.crop)  # type: ignore[method-assign]
    Session.run = marking(clocked("runtime", Session.run))  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as scratch:
        code = infer_launch(["--engine", "inline", "--log_path", scratch, *sys.argv[1:]])
    first, last = _marks
    total = last.process - first.process
    python = sum(last.threads[ident] - spent for ident, spent in first.threads.items())
    inside = {name: last.inside[name] - first.inside[name] for name in ("decode", "resize", "crop", "runtime")}
    inside["runtime"] += total - python
    print(f"CPU time from the first batch to the last: {total:.1f} s")
    for name, seconds in {**inside, "everything else": total - sum(inside.values())}.items():
        print(f"{name:<16}{seconds:8.2f} s {100 * seconds / total:6.2f} %")
    return code


if __name__ == "__main__":
    sys.exit(main())
