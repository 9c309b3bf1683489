"""What part of a picture's way into its batch cannot overlap with other pictures', because it needs Python's interpreter lock?

    python tools/bench/interpreter_lock.py
    python tools/bench/interpreter_lock.py --baseline OTHER_CHECKOUT

Runs the real Loader with 1 to 64 threads. Decoding and resizing, which work without the interpreter lock, are replaced by
sleeps of the same length, so that any number of threads can do them at once, whatever the number of cores. With enough threads
the rate stops growing: there, 1 / rate is the time that one picture keeps the interpreter lock, handing it over included.

With --baseline each round measures both checkouts in turn, each in a process of its own; printed are the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).parents[2]
BATCH_SIZE = 16
NUM_FILES = 64
WARM_UP_S = 0.2
# EfficientNet-Lite0's
RECIPE = {
    "height": 224, "width": 224, "resize": "short_side", "resize_size": 256, "crop_fraction": 0.875, "interpolation": "bicubic",
    "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5),
}  # fmt: skip


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, help="folder of another checkout, measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], help="loader threads to try")
    parser.add_argument("--seconds", type=float, default=0.5, help="to measure each number of threads")
    parser.add_argument("--sizes", nargs="+", default=["640x480"], help="of the pictures, which take turns")
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/interpreter_lock-<time>.json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


# -- in a process of its own ---------------------------------------------------------------------------------------------


def serve(asked: dict[str, Any]) -> None:
    """Print the pictures per second of each number of threads on stdin, with the package that this process imports."""
    from bulkinfer.images.decode import prepare_decoder
    from bulkinfer.worker.protocol import Recipe  # there in every checkout, wherever it is defined

    prepare_decoder()
    recipe = Recipe(**RECIPE)
    sleep_instead(asked["decode_s"], asked["resize_s"])
    for line in sys.stdin:
        print(rate_with(int(line), recipe, asked["files"], asked["seconds"]), flush=True)


def sleep_instead(decode_s: float, resize_s: float) -> None:
    """Replace simplejpeg's decoding and Pillow's resizing in this process."""
    import simplejpeg

    def decode_jpeg(_data: bytes, _colorspace: str, *, min_height: int, min_width: int, buffer: Any, **_: Any) -> Any:
        time.sleep(decode_s)
        return np.frombuffer(buffer, np.uint8, 4 * min_height * min_width).reshape(min_height, min_width, 4)

    blank: dict[tuple[int, int], Any] = {}

    def resize(image: Image.Image, size: tuple[int, int], *_: Any, **__: Any) -> Image.Image:
        time.sleep(resize_s)
        if size not in blank:
            blank[size] = Image.new("RGB", size).im
        return image._new(blank[size])

    simplejpeg.decode_jpeg = decode_jpeg
    Image.Image.resize = resize  # type: ignore[assignment, method-assign]


def rate_with(threads: int, recipe: Any, files: list[str], seconds: float) -> float:
    """Pictures per second that a Loader of so many threads prepares."""
    from bulkinfer.types import Record, Step
    from bulkinfer.worker.in_flight import InFlight
    from bulkinfer.worker.loader import Limits, Loader, load_record
    from bulkinfer.worker.metrics import Meter

    meter, limits = Meter(), Limits(100_000_000, 1 << 30)
    paths = [os.fsencode(path) for path in files]
    finished = [0]

    def records(step: Step) -> Any:
        return (Record(number, b"key", paths[number % len(paths)]) for number in range(step.start, step.end))

    loader = Loader(
        [Step(0, 0, 10_000_000)],
        records=records,
        new_rows=lambda step: step,
        load=lambda record, out_HWC: load_record(record, recipe, limits, out_HWC, meter),
        batch_shape=(BATCH_SIZE, recipe.height, recipe.width, 3),
        marks=InFlight(threads, 0).loaders,
        num_streams=1,
        meter=meter,
    )

    def consume() -> None:
        while (batch := loader.next_ready()) is not None:
            assert not batch.errors, batch.errors
            finished[0] += batch.count
            loader.recycle(batch)

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(WARM_UP_S)
    start_s, before = time.perf_counter(), finished[0]
    time.sleep(seconds)
    pictures, elapsed_s = finished[0] - before, time.perf_counter() - start_s
    loader.stop()
    consumer.join()
    return pictures / elapsed_s


# -- the process that starts the others ----------------------------------------------------------------------------------


def write_pictures(folder: Path, sizes: list[str]) -> list[str]:
    """JPEGs of about the bytes of photographs."""
    random, files = np.random.default_rng(0), []
    for number in range(NUM_FILES):
        width, height = map(int, sizes[number % len(sizes)].split("x"))
        noise = random.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        path = folder / f"{number:03d}.jpg"
        Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).save(path, quality=90)
        files.append(str(path))
    return files


def real_lengths(files: list[str]) -> tuple[float, float]:
    """CPU seconds that decoding takes, and each of the two calls that resize: medians over the files."""
    import simplejpeg

    decode_s, resize_s = [], []
    for path in files:
        data = Path(path).read_bytes()
        start_s = time.thread_time()
        pixels = simplejpeg.decode_jpeg(data, "RGBX")
        decode_s.append(time.thread_time() - start_s)
        image = Image.fromarray(np.ascontiguousarray(pixels[..., :3]))
        side = min(image.size) * 7 // 8
        start_s = time.thread_time()
        image.resize((224, side), Image.Resampling.BICUBIC, box=(0, 0, side, side)).resize((224, 224), Image.Resampling.BICUBIC)
        resize_s.append((time.thread_time() - start_s) / 2)
    return statistics.median(decode_s), statistics.median(resize_s)


class Child:
    """A process with the package of a checkout; it sleeps until it is asked."""

    def __init__(self, checkout: Path, asked: dict[str, Any]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "inference")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child", json.dumps(asked)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def rate(self, threads: int) -> float:
        """Pictures per second with so many loader threads."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(threads, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def spread(values: list[float], digits: int = 3) -> str:
    """median (smallest to largest)."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_table(runs: dict[str, list[dict[int, float]]], threads: list[int]) -> None:
    """Pictures per second by number of threads, and what one picture costs at the plateau."""
    print("pictures/s: " + ", ".join(f"{count} threads" for count in threads) + "; at the plateau")
    for name, found in runs.items():
        rates = "  ".join(f"{statistics.median(run[count] for run in found):.0f}" for count in threads)
        print(f"{name}: {rates}; {spread([1000 / max(run.values()) for run in found])} ms a picture")


def measure(given: argparse.Namespace, checkouts: dict[str, Path], asked: dict[str, Any]) -> dict[str, list[dict[int, float]]]:
    """Of each checkout the rounds; a round has the pictures per second by number of threads. The checkouts take turns."""
    children = {name: Child(path, asked) for name, path in checkouts.items()}
    runs: dict[str, list[dict[int, float]]] = {name: [] for name in children}
    try:
        for number in range(given.rounds):
            found: dict[str, dict[int, float]] = {name: {} for name in children}
            for place, threads in enumerate(given.threads):
                for name in list(children)[:: 1 if (number + place) % 2 else -1]:
                    found[name][threads] = children[name].rate(threads)
            for name, rates in found.items():
                runs[name].append(rates)
            told = ", ".join(f"{name} {1000 / max(rates.values()):.3f}" for name, rates in found.items())
            print(f"  {number + 1}: ms a picture: {told}", flush=True)
    finally:
        for child in children.values():
            child.close()
    return runs


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    if given.child:
        serve(json.loads(given.child))
        return
    from conditions import conditions, heading

    checkouts = {"this checkout": HERE} | ({"baseline": given.baseline} if given.baseline else {})
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    with tempfile.TemporaryDirectory(prefix="interpreter-lock-") as scratch:
        files = write_pictures(Path(scratch), given.sizes)
        decode_s, resize_s = real_lengths(files)
        sleeps = {"decode_s": decode_s, "resize_s": resize_s}
        print(f"sleeps: {1000 * decode_s:.2f} ms to decode, twice {1000 * resize_s:.2f} ms to resize", flush=True)
        runs = measure(given, checkouts, {"files": files, "seconds": given.seconds, **sleeps})
    print_table(runs, given.threads)
    ratios: list[float] = []
    if given.baseline:
        ratios = [max(b.values()) / max(a.values()) for a, b in zip(*runs.values(), strict=True)]
        print(f"this checkout / baseline, ms a picture: {spread(ratios)} over {given.rounds} pairs")
    output = given.output or Path("logs") / f"interpreter_lock-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "sleeps": sleeps, "runs": runs, "ratios": ratios}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
