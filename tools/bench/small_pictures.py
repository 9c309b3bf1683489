"""Small pictures as loose files and in tar shards, in turn: how fast is the read stage alone, from the disk and from memory?

    python tools/bench/small_pictures.py --pictures 100000 --folder /data/small --rounds 9

Makes JPEGs of about 10 kB, no two of which are equal, in folders of 1,000, and packs them by `partition_dataset --mode tar`.
The read stage is what loader threads do before they decode: the bytes of each picture, in the order of a job, by as many
threads as a worker has. Cold, what is dirty is written and the page cache is emptied before each reading, which root alone may
do; then the folders and inodes of loose files are read again as well. Warm, everything was read just before. The list of the
pictures is made before the clock starts. With --folder the data stays there for another call.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.bench.report import Quartiles
from bulkinfer.host.cores import core_budget
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.partitions.make_partitions import partition_dataset
from bulkinfer.records.read_place import forget_archives, read_place
from bulkinfer.types import Place
from comparison import spread
from conditions import conditions, heading
from PIL import Image

SIDE, QUALITY = 136, 90  # of noise of 34 pixels a side: 10 kB
DRAWN = 1000  # different pictures; the others have a number behind their end, too
IN_A_FOLDER = 1000
MOST_BYTES = 1 << 30
KINDS = ("files", "tar")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the data is made, and stays; default: a temporary folder")
    parser.add_argument("--archive_mb", type=int, default=100, help="size of a shard")
    parser.add_argument("--threads", type=int, default=core_budget().usable, help="that read at once")
    parser.add_argument("--rounds", type=int, default=9, help="pairs")
    parser.add_argument("--only", nargs="+", choices=("cold", "warm"), default=["cold", "warm"])
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/small-pictures-<time>.json")
    return parser.parse_args()


def drawn() -> list[bytes]:
    """JPEGs of about 10 kB."""
    random, found = np.random.default_rng(0), []
    for _ in range(DRAWN):
        noise = Image.fromarray(random.integers(0, 256, (SIDE // 4, SIDE // 4, 3), np.uint8))
        content = io.BytesIO()
        noise.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(content, "JPEG", quality=QUALITY)
        found.append(content.getvalue())
    return found


def write_sets(folder: Path, given: argparse.Namespace) -> dict[str, list[Place]]:
    """The places of the pictures of both kinds, which are written where they are not there."""
    loose, packed = folder / "files", folder / "tar"
    if not packed.is_dir():
        pictures = drawn()
        for number in range(given.pictures):
            place = loose / f"{number // IN_A_FOLDER:04d}"
            if not number % IN_A_FOLDER:
                place.mkdir(parents=True)
            (place / f"{number:08d}.jpg").write_bytes(pictures[number % DRAWN] + number.to_bytes(8))
        partition_dataset(loose, mode="tar", archive_mb=given.archive_mb, output=packed)
    found = {kind: [record.place for part in open_dataset(folder / kind).partitions for record in part.manifest.records()]
             for kind in KINDS}  # fmt: skip
    if [len(places) for places in found.values()] != [given.pictures] * 2:
        raise SystemExit(f"{folder} does not hold {given.pictures} pictures twice: give another --folder")
    return found


def read_s(places: list[Place], threads: int) -> float:
    """Seconds of reading all of them, each by the next thread that is free."""
    left, lock = iter(places), threading.Lock()

    def read() -> None:
        while True:
            with lock:
                place = next(left, None)
            if place is None:
                return
            read_place(place, MOST_BYTES)

    workers = [threading.Thread(target=read) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start


def empty_cache() -> bool:
    """Write what is dirty and empty the page cache; False where that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def measure(places: dict[str, list[Place]], given: argparse.Namespace, state: str) -> list[dict[str, float]]:
    """Pictures a second of each pair."""
    pairs = []
    for number in range(given.rounds):
        rates = {}
        for kind in KINDS if number % 2 else reversed(KINDS):
            forget_archives()
            if state == "cold" and not empty_cache():
                print("cold: the page cache cannot be emptied here, which needs root")
                return []
            if state == "warm":
                read_s(places[kind], given.threads)
            rates[kind] = len(places[kind]) / read_s(places[kind], given.threads)
        pairs.append({**rates, "ratio": rates["tar"] / rates["files"]})
        print(f"  {state} {number + 1}: {rates['files']:.0f} and {rates['tar']:.0f} pictures/s, ratio {pairs[-1]['ratio']:.2f}",
              flush=True)  # fmt: skip
    return pairs


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    output = given.output or Path("logs") / f"small-pictures-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    found: dict[str, Any] = conditions(is_quick=False)
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="small-pictures-")))
        places = write_sets(folder, given)
        print("\n".join(heading(found)), flush=True)
        size = sum(path.stat().st_size for path in (folder / "tar").glob("*.tar"))
        print(f"{given.pictures:,} pictures, {size / given.pictures:.0f} bytes each in shards of {given.archive_mb} MB; "
              f"{given.threads} threads")  # fmt: skip
        runs = {state: pairs for state in given.only if (pairs := measure(places, given, state))}
    print("| page cache | files, pictures/s | tar, pictures/s | tar / files |", "|---|---|---|---|", sep="\n")
    for state, pairs in runs.items():
        shown = (spread(asdict(Quartiles.of([pair[name] for pair in pairs])), 0 if name in KINDS else 2)
                 for name in (*KINDS, "ratio"))  # fmt: skip
        print(f"| {state} | {' | '.join(shown)} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "pictures": given.pictures, "runs": runs}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
