"""Pictures of a bucket against the same pictures as files, in turn: how fast are they read, and prepared for a network?

    python tools/bench/stores.py --made 2000 --latency_ms 20
    python tools/bench/stores.py --made 4000 --size 280x210
    python tools/bench/stores.py --made 400 --network models/efficientnet_lite0

The bucket is a server of this file on the loopback interface, in a process of its own, which answers requests for objects after
a fixed time and as fast as Python can; it shares the cores with what is measured. `read` is the bytes of all pictures, taken in
order by as many threads as there are cores. `prepared` is what a worker does up to its network: read, decoded, resized into
batches. With --network it is infer_launch with that network instead, on the CPU: its rate without start and warm-up, and the
memory of its largest process. Prints medians with quartiles, the ratios to files in the same round, and how many pictures were
read at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.bench.report import Quartiles
from bulkinfer.host.cores import core_budget
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.read_place import read_place
from bulkinfer.types import Record, Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.loader import Limits, Loader, load_record
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.read_ahead import ReadAhead
from comparison import spread
from conditions import conditions, heading
from interpreter_lock import write_pictures

BATCH = 32
STEP = 10 * BATCH  # pictures
MOST_BYTES = 1 << 30
LIMITS = Limits(max_pixels=1 << 28, max_file_bytes=MOST_BYTES)
RECIPE = Recipe(224, 224, "short_side", 256, 0.875, "bilinear", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
KINDS = ("files", "bucket", "bucket, slow")
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nLast-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\n"
    b'ETag: "1"\r\nContent-Type: image/jpeg\r\n\r\n'
)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--made", type=int, default=2000, help="number of pictures")
    parser.add_argument("--size", default="640x480", help="of the pictures, in pixels; 280x210 are some 20 kB")
    parser.add_argument("--latency_ms", type=float, default=20.0, help="added to every request of the slow bucket")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--network", type=Path, help="folder of a network: measure infer_launch with it")
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "SECONDS"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/stores-<time>.json")
    return parser.parse_args()


async def serve(folder: Path, latency_s: float) -> None:
    """Answer requests for /bucket/NAME with the files of a folder, until this process is ended."""
    answers = {path.name.encode(): _HEAD % path.stat().st_size + path.read_bytes() for path in folder.iterdir()}

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.begun = transport, b""

        def data_received(self, data: bytes) -> None:
            self.begun += data
            while (end := self.begun.find(b"\r\n\r\n")) >= 0:
                name = self.begun[: self.begun.index(b" HTTP")].rpartition(b"/")[2]
                self.begun = self.begun[end + 4 :]
                asyncio.get_running_loop().call_later(latency_s, self.transport.write, answers[name])

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def start_server(folder: Path, latency_s: float) -> tuple[subprocess.Popen[str], str]:
    """A server process and its address."""
    command = [sys.executable, __file__, "--serve", str(folder), str(latency_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{process.stdout.readline().strip()}"


def steps_of(count: int) -> list[Step]:
    """All pictures in steps."""
    return [Step(0, start, min(start + STEP, count)) for start in range(0, count, STEP)]


class Source:
    """The records of one kind. Those of a bucket are read ahead."""

    def __init__(self, places: list[bytes], kind: str) -> None:
        self.places, self.kind = places, kind

    def records(self, step: Step) -> Iterator[Record]:
        """The records of a step."""
        return (Record(number, b"", self.places[number]) for number in range(step.start, step.end))

    def read_ahead(self, threads: int) -> ReadAhead | None:
        """The reading ahead of a worker with so many loader threads."""
        if self.kind == "files":
            return None
        read = lambda place, admit: read_place(place, MOST_BYTES, admit)  # noqa: E731
        return ReadAhead(steps_of(len(self.places)), self.records, read, least=2 * threads)


def read_rate(source: Source, threads: int) -> tuple[float, int]:
    """Pictures per second of reading all, and how many are read at once in the end."""
    ahead, lock = source.read_ahead(threads), threading.Lock()
    steps = iter(ahead.steps() if ahead else steps_of(len(source.places)))
    records = (record for step in steps for record in (ahead or source).records(step))

    def take() -> None:
        while True:
            with lock:
                record = next(records, None)
            if record is None:
                return
            record.ahead() if record.ahead else read_place(record.place, MOST_BYTES)

    start = time.perf_counter()
    takers = [threading.Thread(target=take) for _ in range(threads)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    return len(source.places) / (time.perf_counter() - start), ahead.depth if ahead else 0


class Rows:
    """In place of the rows of a step."""

    def __init__(self, step: Step) -> None:
        self.step = step


def prepared_rate(source: Source, threads: int) -> tuple[float, float]:
    """Pictures per second that a Loader prepares, and per second of processor time of this process."""
    meter, ahead = Meter(), source.read_ahead(threads)
    start, start_cpu = time.perf_counter(), time.process_time()
    loader = Loader(
        steps_of(len(source.places)),
        records=source.records,
        new_rows=Rows,
        load=lambda record, out_HWC: load_record(record, RECIPE, LIMITS, out_HWC, meter),
        batch_shape=(BATCH, 224, 224, 3),
        marks=InFlight(threads, 1).loaders,
        num_streams=1,
        meter=meter,
        read_ahead=ahead,
    )
    count = 0
    while (batch := loader.next_ready()) is not None:
        assert not batch.errors, batch.errors
        count += batch.count
        loader.recycle(batch)
    assert count == len(source.places)
    return count / (time.perf_counter() - start), count / (time.process_time() - start_cpu)


def launched(network: Path, lists: dict[str, Path], urls: dict[str, str], scratch: Path, kind: str) -> dict[str, float]:
    """Pictures per second of infer_launch on one kind, and the memory of its largest process in MB."""
    data = scratch / f"data, {kind}"
    environment = {**os.environ, "AWS_ENDPOINT_URL": urls.get(kind, "http://127.0.0.1:1")}
    run = partial(subprocess.Popen, env=environment, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not data.exists():
        words = ["partition_dataset", "--list_file", str(lists[kind]), "--partitions", "1", "--mode", "manifest"]
        assert run([sys.executable, "-m", "bulkinfer", *words, "--output", str(data)]).wait() == 0
    words = ["infer_launch", "--data_dir", str(data), "--model_path", str(network.parent), "--model_name", network.name]
    words += ["--device", "cpu", "--output", str(scratch / "out"), "--overwrite"]
    process = run([sys.executable, "-m", "bulkinfer", *words])
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    found = re.search(r"^total: .* sec: ([0-9.]+) images/sec", printed, re.MULTILINE)
    assert status == 0, printed
    assert found is not None, printed
    return {"infer_launch": float(found[1]), "peak memory, MB": used.ru_maxrss / 1000}


def measure(places: dict[str, list[bytes]], urls: dict[str, str], kind: str) -> dict[str, float]:
    """All figures of one kind."""
    threads, source = core_budget().usable, Source(places[kind], kind)
    os.environ["AWS_ENDPOINT_URL"] = urls.get(kind, "")
    read, at_once = read_rate(source, threads)
    prepared, by_cpu = prepared_rate(source, threads)
    return {"read": read, "at once": at_once, "prepared": prepared, "prepared, a processor second": by_cpu}


def print_table(rounds: list[dict[str, dict[str, float]]]) -> None:
    """Medians with quartiles, of the figures and of the ratios to files."""
    print(f"| | {' | '.join(KINDS)} | bucket / files | slow / files |", "|---|---|---|---|---|---|", sep="\n")
    for name in rounds[0]["files"]:
        by_kind = {kind: [each[kind][name] for each in rounds] for kind in KINDS}
        shown = [spread(asdict(Quartiles.of(values)), 0) for values in by_kind.values()]
        pairs = [zip(by_kind[kind], by_kind["files"], strict=True) for kind in KINDS[1:]]
        ratios = [[one / other if other else 0.0 for one, other in pair] for pair in pairs]
        print(f"| {name} | {' | '.join([*shown, *(spread(asdict(Quartiles.of(each)), 3) for each in ratios)])} |")


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    if given.serve:
        asyncio.run(serve(Path(given.serve[0]), float(given.serve[1])))
        return
    output = given.output or Path("logs") / f"stores-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    scratch, servers = Path(tempfile.mkdtemp(prefix="stores-")), list[subprocess.Popen[str]]()
    prepare_decoder()
    os.environ |= {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_REGION": "us-east-1"}
    found: dict[str, Any] = conditions(is_quick=False, latency_ms=given.latency_ms)
    print("\n".join(heading(found)), flush=True)
    try:
        (scratch / "made").mkdir()
        made = [Path(path) for path in write_pictures(scratch / "made", [given.size])]
        (scratch / "plain").mkdir()
        for number in range(given.made):
            shutil.copyfile(made[number % len(made)], scratch / "plain" / f"{number:06d}.jpg")
        mean_bytes = float(np.mean([path.stat().st_size for path in made]))
        places = {"files": [os.fsencode(path) for path in sorted((scratch / "plain").iterdir())]}
        urls = {}
        for kind, latency_s in ((KINDS[1], 0.0), (KINDS[2], given.latency_ms / 1000)):
            process, urls[kind] = start_server(scratch / "made", latency_s)
            servers.append(process)
            bucket = kind.replace(", ", "-").encode()  # each has its own client
            names = [made[number % len(made)].name.encode() for number in range(given.made)]
            places[kind] = [b"s3://%b/%d/%b" % (bucket, number, name) for number, name in enumerate(names)]
        one_round: Callable[[str], dict[str, float]] = partial(measure, places, urls)
        if given.network:
            lists = {kind: scratch / f"{kind}.txt" for kind in KINDS}
            for kind, path in lists.items():
                path.write_bytes(b"\n".join(places[kind]))
            one_round = partial(launched, given.network.absolute(), lists, urls, scratch)
        rounds = [
            {kind: one_round(kind) for kind in (KINDS if number % 2 else reversed(KINDS))} for number in range(given.rounds + 1)
        ][1:]  # the first one only warms up
    finally:
        for process in servers:
            process.kill()
            process.wait()
        shutil.rmtree(scratch)
    print(f"- {given.made} pictures of {mean_bytes / 1000:.0f} kB")
    print_table(rounds)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        json.dumps({**found, "pictures": given.made, "mean_bytes": mean_bytes, "rounds": rounds}, indent=1) + "\n"
    )
    print(f"written: {output}")


if __name__ == "__main__":
    main()
