"""The same pictures as files and in each kind of archive, in turn: how fast are they read, and prepared for training?

    python tools/bench/archives.py --data_dir PHOTOS
    python tools/bench/archives.py --made 2000 --cold
    python tools/bench/archives.py --made 20200 --small --batches 0

`read` is the bytes of every picture in the order of a job, by one thread; with --cold the page cache is emptied before (by root
alone). `train` is pictures per second of the input of training: drawn at random, decoded, cropped to 224 pixels, by as many
threads as there are cores; the same per second of processor time. `step` is the seconds until the first record of a step near
the middle of a set, another one in each round, is found and read, in a process that has opened no archive. Prints medians with
quartiles, and the size of each index. Zip members are stored; Parquet has row groups of 100 pictures, as Hugging Face writes
them, or, as `parquet_1024`, the pages of 1,024 pictures that pyarrow writes by default; Arrow files are uncompressed.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import shutil
import tempfile
import time
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bulkinfer.bench.report import Quartiles
from bulkinfer.datasets import read_dataset
from bulkinfer.datasets.types import FilePictures
from bulkinfer.host.cores import core_budget
from bulkinfer.records.archives.archive_index import INDEX_FILE
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.partitions.make_partitions import partition_dataset
from bulkinfer.records.read_place import forget_archives, read_place
from bulkinfer.train.data.recipes import recipe_for
from bulkinfer.train.data.samples import Work, file_samples
from comparison import spread
from conditions import conditions, heading
from interpreter_lock import write_pictures
from picture_folder import of_one_size, usable_jpegs

PACKED = ("tar", "tfrecord")  # by partition_dataset
TABLES = ("parquet", "parquet_1024", "arrow")
KINDS = ("folder", "list", "tar", "tar_gz", "tfrecord", "zip", *TABLES)
BATCH = 32
WARM_UP = 4  # batches
MOST_BYTES = 1 << 30
CLASSES = 10


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, help="folder of JPEGs, which are made 640x480; default: made-up ones")
    parser.add_argument("--made", type=int, default=1000, help="number of pictures that are made up, without --data_dir")
    parser.add_argument("--small", action="store_true", help="made-up pictures of some 10 kB")
    parser.add_argument("--batches", type=int, default=40, help=f"of {BATCH} pictures, for train; 0: do not measure it")
    parser.add_argument("--cold", action="store_true", help="empty the page cache before each reading")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/archives-<time>.json")
    return parser.parse_args()


def write_sets(given: argparse.Namespace, scratch: Path) -> dict[str, Path]:
    """A data set of each kind, with train and validation pictures."""
    plain = scratch / "plain"
    if given.data_dir:
        of_one_size(plain, usable_jpegs(given.data_dir)[0])
    else:
        (scratch / "made").mkdir()
        made = write_pictures(scratch / "made", ["160x120" if given.small else "640x480"])
        plain.mkdir()
        for number in range(given.made):
            content = Path(made[number % len(made)]).read_bytes()
            (plain / f"{number:06d}.jpg").write_bytes(content + number.to_bytes(8))  # no two are equal, as in data sets
    pictures = sorted(plain.iterdir())
    folder = scratch / "folder"
    for number, path in enumerate(pictures):
        split = "val" if number < CLASSES else "train"
        place = folder / split / f"class-{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / path.name)
    for kind, split in itertools.product(PACKED, ("train", "val")):
        partition_dataset(folder / split, labels="folders", mode=kind, output=scratch / kind)
    write_list(folder / "train", scratch)
    write_compressed(scratch / "tar", scratch / "tar_gz")
    for split in ("train", "val"):
        write_zip(folder / split, scratch / "zip" / f"{split}.zip")
        write_tables(folder / split, scratch, split)
    os.sync()
    return {kind: scratch / kind for kind in KINDS}


def write_list(pictures: Path, scratch: Path) -> None:
    """A partition of the pictures that a list names."""
    names = [str(path.relative_to(pictures)) for path in sorted(pictures.rglob("*.jpg"))]
    (scratch / "list.txt").write_text("\n".join(names))
    options = {"list_file": scratch / "list.txt", "mode": "manifest", "partitions": 1}
    partition_dataset(pictures, output=scratch / "list", **options)


def write_compressed(archives: Path, folder: Path) -> None:
    """Tar files compressed by gzip."""
    folder.mkdir()
    for path in archives.iterdir():
        if path.suffix == ".tar":
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
        elif not path.name.startswith("."):
            shutil.copy(path, folder)


def write_zip(pictures: Path, path: Path) -> None:
    """A zip file of a folder of pictures, in class folders."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(pictures.rglob("*.jpg")):
            archive.write(each, each.relative_to(pictures))


def write_tables(pictures: Path, scratch: Path, split: str) -> None:
    """Parquet and Arrow files of a folder of pictures, with the number of its class for each."""
    paths = sorted(pictures.rglob("*.jpg"))
    columns = {
        "image": pa.array([{"bytes": path.read_bytes(), "path": path.name} for path in paths]),
        "label": [int(path.parent.name.rpartition("-")[2]) for path in paths],
    }
    table = pa.table(columns)
    for kind in TABLES:
        (scratch / kind).mkdir(exist_ok=True)
    pq.write_table(table, scratch / "parquet" / f"{split}.parquet", row_group_size=100)
    pq.write_table(table, scratch / "parquet_1024" / f"{split}.parquet")
    with pa.ipc.new_stream(scratch / "arrow" / f"{split}.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


def read_rate(place: Path, *, is_cold: bool) -> float:
    """Pictures per second of reading all of them in order."""
    places = [record.place for part in open_dataset(place).partitions for record in part.manifest.records()]
    if is_cold:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    start = time.perf_counter()
    for each in places:
        read_place(each, MOST_BYTES)
    return len(places) / (time.perf_counter() - start)


def train_rates(place: Path, batches: int) -> tuple[float, float]:
    """Pictures per second of the input of training, and per second of processor time."""
    pictures = read_dataset("folder", place, "train")
    assert isinstance(pictures, FilePictures)
    recipe = recipe_for("folder", 224, whole=False)
    samples = file_samples(pictures, recipe, num_threads=core_budget().usable, seed=0, crop_area=(0.08, 1.0))
    drawn = np.random.default_rng(0).integers(0, len(pictures), (batches + WARM_UP, BATCH))
    start = start_cpu = 0.0
    for number, _ in enumerate(samples.batches(Work(step, 0, row) for step, row in enumerate(drawn))):
        if number == WARM_UP - 1:
            start, start_cpu = time.perf_counter(), time.process_time()
    count = batches * BATCH
    return count / (time.perf_counter() - start), count / (time.process_time() - start_cpu)


def step_s(place: Path, round_number: int) -> float:
    """Seconds until the first record of a step near the middle of a data set is read."""
    (partition,) = open_dataset(place).partitions
    forget_archives()
    start = time.perf_counter()
    middle = partition.manifest.num_records // 2 + round_number * 1009 % (partition.manifest.num_records // 3)
    read_place(next(partition.manifest.records(middle, middle + 1)).place, MOST_BYTES)
    return time.perf_counter() - start


def measure(place: Path, given: argparse.Namespace, round_number: int) -> dict[str, float]:
    """All figures of one data set; a list is none for training."""
    found = {"read": read_rate(place, is_cold=given.cold), "step": step_s(place, round_number)}
    if given.batches and place.name != "list":
        found["train"], found["train, a processor second"] = train_rates(place, given.batches)
    return found


def rounds_of(sets: dict[str, Path], given: argparse.Namespace) -> list[dict[str, dict[str, float]]]:
    """The figures of each round by kind; those that there are when it is interrupted."""
    rounds: list[dict[str, dict[str, float]]] = []
    try:
        for number in range(given.rounds + 1):
            found = {kind: measure(sets[kind], given, number) for kind in (KINDS if number % 2 else reversed(KINDS))}
            if number:  # the first one only warms up
                rounds.append(found)
    except KeyboardInterrupt:
        print(f"interrupted after {len(rounds)} rounds", flush=True)
    return rounds


def print_table(rounds: list[dict[str, dict[str, float]]]) -> None:
    """Medians with quartiles, of the figures and of the ratios to files."""
    for name in rounds[0]["folder"]:
        by_kind = {kind: [each[kind][name] for each in rounds] for kind in KINDS if name in rounds[0][kind]}
        print(f"| {name} | | beside files |", "|---|---|---|", sep="\n")
        for kind, values in by_kind.items():
            ratios = [one / other for one, other in zip(values, by_kind["folder"], strict=True)]
            shown = spread(asdict(Quartiles.of(values)), 1 if name != "step" else 5)
            print(f"| {kind} | {shown} | {spread(asdict(Quartiles.of(ratios)), 3)} |")


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    output = given.output or Path("logs") / f"archives-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    scratch = Path(tempfile.mkdtemp(prefix="archives-"))
    found: dict[str, Any] = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    try:
        sets = write_sets(given, scratch)
        rounds = rounds_of(sets, given)
        pictures = len(list(sets["folder"].rglob("*.jpg")))
        index_bytes = {kind: (sets[kind] / INDEX_FILE).stat().st_size for kind in KINDS[2:]}
    finally:
        shutil.rmtree(scratch)
    if rounds:
        print_table(rounds)
    for kind, size_bytes in index_bytes.items():
        print(f"index of the {kind} files: {size_bytes / pictures:.1f} bytes a picture")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        json.dumps({**found, "pictures": pictures, "index_bytes": index_bytes, "rounds": rounds}, indent=1) + "\n"
    )
    print(f"written: {output}")


if __name__ == "__main__":
    main()
