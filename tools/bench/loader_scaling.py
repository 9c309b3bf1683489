"""How many pictures per second can one worker decode: its loader threads alone, and with 1, 2, ... loader processes?

    python tools/bench/loader_scaling.py
    python tools/bench/loader_scaling.py --threads 16 --processes -1 1 2 4 8

First the real Loader runs with each number of loader processes (-1: none, the threads decode) in turn, without a network; the
rate and the CPU time of a picture are those of the worker and its processes together.

Then the time is measured that a picture keeps an interpreter lock, handing it over included: 1 / rate where more threads no
longer raise the rate. Three are measured: that of threads, as tools/bench/interpreter_lock.py does it; that of a process,
with the same sleeps in place of decoding and resizing; that of a worker whose loader process answers at once.

From these it computes the ceiling on machines with more cores, one loader thread a core: a closed network of queues (exact mean
value analysis), in which each thread goes round: the lock of the worker, that of one of the processes, and the rest of the CPU
time, which overlaps. It holds for cores as fast as this one's, with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bulkinfer.host.cores import core_budget, loader_processes_for
from bulkinfer.host.usage import cpu_seconds
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Facts, Record, Step
from bulkinfer.worker import loader_process, remote_loader
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.loader import Limits, Loader, empty_batch, load_record
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.remote_loader import LoaderProcesses
from conditions import conditions, heading
from interpreter_lock import BATCH_SIZE, HERE, RECIPE, Child, real_lengths, sleep_instead, spread, write_pictures

WARM_UP_S = 1.0  # a loader process that has just begun takes longer for its first pictures
LIMITS = Limits(100_000_000, 1 << 30)
SHAPE = (BATCH_SIZE, RECIPE["height"], RECIPE["width"], 3)
PLATEAU = (4, 8, 16, 32)  # loader threads: where the rate no longer grows
CORES = (4, 8, 16, 32, 64)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = core_budget().usable
    several = sorted({-1, 1, 2, 3, 4, cores // 5, cores // 4, cores // 2} - {0})
    parser.add_argument("--threads", type=int, default=cores, help="loader threads; default: one a core")
    parser.add_argument("--processes", type=int, nargs="+", default=several, help="numbers of loader processes, -1: none")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--sizes", nargs="+", default=["640x480"], help="of the pictures, which take turns")
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/loader_scaling-<time>.json")
    return parser.parse_args()


# -- stand-ins for a loader process --------------------------------------------------------------------------------------


def serve_stand_in(kind: str, lengths: str, words: list[str]) -> None:
    """A loader process that sleeps in place of decoding and resizing, or (`kind` "instant") answers at once."""
    if kind == "instant":
        facts = Facts("JPEG", 1, 640, 480, (), 100_000)
        loader_process.load_record = lambda *_: facts  # type: ignore[attr-defined]
    else:
        prepare_decoder()  # before there are only sleeps to try simplejpeg with
        sleep_instead(*json.loads(lengths))
    loader_process.main(words)


def stand_in(kind: str, lengths: tuple[float, float]) -> tuple[str, ...]:
    """The command that starts one."""
    return (sys.executable, __file__, "--stand-in", kind, json.dumps(lengths))


def spec_of(processes: int, threads: int) -> Any:
    """The part of a RunSpec that loader processes are started by."""
    limits = {"max_pixels": LIMITS.max_pixels, "max_file_bytes": LIMITS.max_file_bytes, "reduce_to": 0}
    return SimpleNamespace(recipe=Recipe(**RECIPE), batch_size=BATCH_SIZE, session=SimpleNamespace(streams=1),
                           num_workers=threads, loader_processes=processes, **limits)  # type: ignore[arg-type]  # fmt: skip


# -- one measurement -----------------------------------------------------------------------------------------------------


def measured(processes: int, threads: int, files: list[str], seconds: float) -> tuple[float, float]:
    """Pictures per second that a Loader prepares with so many processes and threads, and CPU seconds a picture."""
    meter, paths = Meter(), [os.fsencode(path) for path in files]
    pool, recipe, descriptor = None, Recipe(**RECIPE), shared(threads, 0)  # type: ignore[arg-type]
    if processes > 0:
        pool = LoaderProcesses(spec_of(processes, threads), descriptor, meter, print)
        pool.wait_until_ready()

    def load(record: Record, out_HWC: Any) -> Facts:
        return load_record(record, recipe, LIMITS, out_HWC, meter)

    loader = Loader(
        [Step(0, 0, 10_000_000)],
        records=lambda step: (Record(n, b"key", paths[n % len(paths)]) for n in range(step.start, step.end)),
        new_rows=lambda step: step,
        load=load,
        batch_shape=SHAPE,
        marks=InFlight(threads, 0, descriptor).loaders,
        num_streams=1,
        meter=meter,
        new_batch=pool.new_batch if pool else empty_batch,
        chunk_loader=pool,
    )
    pids = pool.pids if pool else []
    found = rate_of(loader, lambda: cpu_seconds(pids), seconds)
    if pool:
        pool.close()
    os.close(descriptor)
    return found


def rate_of(loader: Loader, cpu_s: Callable[[], float], seconds: float) -> tuple[float, float]:
    """Pictures per second, and CPU seconds of each, while a thread takes the batches; then the loader is stopped."""
    finished = [0]

    def consume() -> None:
        while (batch := loader.next_ready()) is not None:
            assert not batch.errors, batch.errors
            finished[0] += batch.count
            loader.recycle(batch)

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(WARM_UP_S)
    start_s, start_cpu_s, before = time.perf_counter(), cpu_s(), finished[0]
    time.sleep(seconds)
    pictures, elapsed_s, used_s = finished[0] - before, time.perf_counter() - start_s, cpu_s() - start_cpu_s
    loader.stop()
    consumer.join()
    return pictures / elapsed_s, used_s / pictures


def lock_times(files: list[str], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Seconds that one picture keeps the lock: of threads alone, of a worker with processes, and of such a process."""
    lengths = real_lengths(files)
    child = Child(HERE, {"files": files, "seconds": seconds, "decode_s": lengths[0], "resize_s": lengths[1]})
    plain, found = remote_loader.COMMAND, dict[str, list[float]](threads=[], worker=[], process=[])
    try:
        for number in range(rounds):
            found["threads"].append(1 / max(child.rate(threads) for threads in PLATEAU))
            for name, kind in (("worker", "instant"), ("process", "sleeps")):
                remote_loader.COMMAND = stand_in(kind, lengths)
                found[name].append(1 / max(measured(1, threads, files, seconds)[0] for threads in PLATEAU))
            told = ", ".join(f"{name} {1000 * times[-1]:.3f}" for name, times in found.items())
            print(f"  {number + 1}: ms a picture that cannot overlap: {told}", flush=True)
    finally:
        remote_loader.COMMAND = plain
        child.close()
    return found


# -- larger machines -----------------------------------------------------------------------------------------------------


def ceiling(threads: int, locks: Sequence[float], rest_s: float) -> float:
    """Pictures per second of `threads` that each need every lock for its seconds, and `rest_s` without one: exact MVA."""
    waiting, rate = [0.0] * len(locks), 0.0
    for customers in range(1, threads + 1):
        times = [held * (1 + queue) for held, queue in zip(locks, waiting, strict=True)]
        rate = customers / (rest_s + sum(times))
        waiting = [rate * spent for spent in times]
    return rate


def expected(cores: int, held: dict[str, float], cpu_s: dict[str, float]) -> tuple[float, float, int]:
    """Of a machine with so many cores: pictures per second by threads alone, by processes, and how many of those."""
    processes = max(1, loader_processes_for(0, cores))
    by_threads = ceiling(cores, [held["threads"]], max(0.0, cpu_s["threads"] - held["threads"]))
    locks = [held["worker"], *[held["process"] / processes] * processes]
    by_processes = ceiling(cores, locks, max(0.0, cpu_s["processes"] - held["worker"] - held["process"]))
    return by_threads, by_processes, processes


def print_expected(held: dict[str, float], cpu_s: dict[str, float]) -> dict[int, tuple[float, float, int]]:
    """The table of larger machines."""
    table = {cores: expected(cores, held, cpu_s) for cores in CORES}
    print("| cores = loader threads of one worker | threads, images/s | loader processes (auto) | images/s | ratio |")
    print("|---|---|---|---|---|")
    for cores, (threads, processes, count) in table.items():
        auto = str(loader_processes_for(0, cores) or f"none; with {count}")
        print(f"| {cores} | {threads:.0f} | {auto} | {processes:.0f} | {processes / threads:.2f} |")
    return table


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    prepare_decoder()
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    runs: dict[int, list[tuple[float, float]]] = {count: [] for count in given.processes if count <= given.threads}
    with tempfile.TemporaryDirectory(prefix="loader-scaling-") as scratch:
        files = write_pictures(Path(scratch), given.sizes)
        for number in range(given.rounds):
            for count in list(runs)[:: 1 if number % 2 else -1]:
                runs[count].append(measured(count, given.threads, files, given.seconds))
            told = ", ".join(f"{count}: {several[-1][0]:.0f}" for count, several in runs.items())
            print(f"  {number + 1}: images/s by loader processes: {told}", flush=True)
        times = lock_times(files, given.seconds / 4, given.rounds)
    first = next(iter(runs))
    print(
        f"| loader processes ({given.threads} threads) | images/s | CPU ms a picture | rate over {first} | CPU over {first} |"
    )
    print("|---|---|---|---|---|")
    for count, several in runs.items():
        rates, costs = zip(*several, strict=True)
        ratios = [one[0] / base[0] for one, base in zip(several, runs[first], strict=True)]
        dearer = [one[1] / base[1] for one, base in zip(several, runs[first], strict=True)]
        cells = (spread(list(rates), 0), spread([1000 * cost for cost in costs], 2), spread(ratios), spread(dearer))
        print(f"| {count} | {' | '.join(cells)} |")
    for name, several in times.items():
        print(f"cannot overlap, {name}: {spread([1000 * one for one in several])} ms a picture")
    best = {name: statistics.median(several) for name, several in times.items()}
    costs = {name: statistics.median(cost for count, several in runs.items() if (count > 0) == (name == "processes")
                                     for _, cost in several) for name in ("threads", "processes")}  # fmt: skip
    table = print_expected(best, costs)
    output = given.output or Path("logs") / f"loader_scaling-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    figures = {"recipe": RECIPE, "threads": given.threads, "runs": runs, "lock_s": times, "expected": table}
    output.write_text(json.dumps({**found, **figures}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stand-in"]:
        serve_stand_in(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        main()
