"""Plan, memory and resume of jobs of ten and a hundred million pictures, with what is simulated said here.

    python tools/bench/plan_scale.py [--only archives resume] [--records 10000000] [--keys 100000000] [--scratch DIR]

archives: tar shards of 10,000 pictures of 10 kB, 1,000 shards by default, beside 10. The shards are sparse files that hold
zeros, and their index, which a first command makes by reading them, is written by the same code from made-up members. So each
record becomes an error row, and all else is as in any run. Printed are the seconds and the peak memory of `infer_launch
--dry_run`, and what launcher and worker hold from the 20th step on.

resume: partitions of a million keys each, of files that do not exist, and all parts but the last few: hard links to one small
file, recorded in _job.json with its hash. So the manifests, _job.json and the list of parts are as in any run, and the bytes of
the parts, which a resume hashes, are not there. Printed are the seconds and the peak memory of a resume, of a tenth of the keys
as well.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bulkinfer.files.atomic import file_sha256
from bulkinfer.records.archives import index_file
from bulkinfer.records.archives.archive_index import open_index
from bulkinfer.records.manifest_rows import ROWS, filled_table
from bulkinfer.records.partitions.partition import publish_partitions
from bulkinfer.records.partitions.split import even_split
from bulkinfer.records.sources.archives import Kind, ListedPicture
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Step
from conditions import conditions, heading
from grow import ALONE, MIB, SCRIPTS, STEP_PICTURES, Watched, make_network, over, tell

IN_A_SHARD, PICTURE_BYTES, CLASSES = 10_000, 10_000, 1000
MEMBER_BYTES = 512 + -(-PICTURE_BYTES // 512) * 512
IN_A_PARTITION = 1_000_000
MOST_LINKS = 10_000  # to one file: some file systems allow 65,000
LEFT = 5  # steps that are not done when a job is resumed


def peak_memory(pid: int) -> int:
    """The most bytes that a process has held so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


@dataclass(frozen=True)
class Measured:
    """A run of infer_launch: seconds, processor seconds with its workers, peak bytes without them, what it printed."""

    seconds: float
    cpu_s: float
    peak: int
    text: str


def measured(scratch: Path, *words: object) -> Measured:
    """Run infer_launch to its end."""
    start, peak, ended = time.perf_counter(), 0, 0
    command = [SCRIPTS / "infer_launch", *map(str, (*ALONE, *words))]
    with (scratch / "printed").open("w+") as printed:
        process = subprocess.Popen(command, cwd=scratch, stdout=printed, stderr=subprocess.STDOUT)
        while not ended:
            peak = max(peak, peak_memory(process.pid))  # until it is waited for, its place in /proc stays
            time.sleep(0.02)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        seconds, process.returncode = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
    if process.returncode not in (0, 3):
        raise SystemExit(f"infer_launch ended with exit code {process.returncode}: {text}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, peak, text)


# -- archives ------------------------------------------------------------------------------------------------------------


def made_up(_file: Any, _path: bytes, _left_out: Counter[str], _columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The members of a simulated shard."""
    for number in range(IN_A_SHARD):
        yield ListedPicture(b"%06d.jpg" % number, PICTURE_BYTES, 512 + number * MEMBER_BYTES, PICTURE_BYTES, number % CLASSES)


def write_shards(folder: Path, shards: int) -> None:
    """Sparse shards, and the index beside them."""
    folder.mkdir()
    names = [f"photos-{number:05d}-of-{shards:05d}.tar" for number in range(shards)]
    for name in names:
        (folder / name).touch()
        os.truncate(folder / name, IN_A_SHARD * MEMBER_BYTES + 1024)
    index_file.kind = lambda _name: Kind(made_up, None)  # type: ignore[assignment, arg-type, return-value]
    open_index(os.fsencode(folder), [name.encode() for name in names])


def measure_archives(scratch: Path, records: int, steps: int) -> None:
    """Plan, and memory of a launch, of 100,000 records and of `records`."""
    memory: dict[int, dict[str, int]] = {}
    for count in (10 * IN_A_SHARD, records):
        data = f"shards-{count}"
        write_shards(scratch / data, count // IN_A_SHARD)
        for turn in ("the first time", "again"):
            found = measured(scratch, "--data_dir", data, "--output", f"out-{count}", "--dry_run")
            if f"{count} records" not in found.text:
                raise SystemExit(f"not {count} records: {found.text}")
            tell(f"plan of {count:,} records in {count // IN_A_SHARD:,} shards, {turn}", found.seconds, "s", 10)
            print(f"  processor time: {found.cpu_s:.2f} s", flush=True)
        most = min(steps, count // STEP_PICTURES - LEFT)
        memory[count] = {"plan": found.peak, **run_steps(scratch, data, f"out-{count}", most)}
    small, large = memory.values()
    for who, peak in large.items():
        tell(
            f"  {who}: {small[who] / MIB:.0f} MiB at 100,000 records; more at {records:,}",
            (peak - small[who]) / MIB,
            "MiB",
            100,
        )


def run_steps(scratch: Path, data: str, output: str, most_steps: int) -> dict[str, int]:
    """Start the job; the peak memory of the launcher up to its first part, and what both hold when 20 are published.

    Parts are counted, not lines: of steps without a sound picture the launcher prints none.
    """
    words = ("--data_dir", data, "--output", output, "--overwrite")
    started, held = time.perf_counter(), dict[str, int]()
    with (scratch / "printed").open("w") as printed:
        process = subprocess.Popen([SCRIPTS / "infer_launch", *map(str, (*ALONE, *words))], cwd=scratch, stdout=printed)
        watched = Watched(process, started)
        wait_for_parts(process, scratch / output, 1)
        held["launcher until the first part"] = peak_memory(process.pid)
        print(f"  to the first part: {time.perf_counter() - started:.1f} s", flush=True)
        wait_for_parts(process, scratch / output, 20)
        early = watched.memory()
        if most_steps > 20:
            wait_for_parts(process, scratch / output, most_steps)
            late = watched.memory()
            print(f"  growth from part 20 to part {most_steps}: launcher {(late[0] - early[0]) / MIB:.1f} MiB, "
                  f"worker {(late[1] - early[1]) / MIB:.1f} MiB", flush=True)  # fmt: skip
        process.send_signal(signal.SIGTERM)
        process.wait()
    return {**held, "launcher at part 20": early[0], "worker at part 20": early[1]}


def wait_for_parts(process: subprocess.Popen[bytes], output: Path, count: int) -> None:
    """Until so many parts are published."""
    while not output.is_dir() or sum(name.startswith("part-") for name in os.listdir(output)) < count:
        if process.poll() is not None:
            raise SystemExit(f"infer_launch ended with exit code {process.returncode} before part {count}")
        time.sleep(0.02)


# -- resume --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """Lines of a manifest, made a block at a time: `count` keys in order, from `first` on."""

    first: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> Keys:
        start, end, _ = part.indices(self.count)
        return Keys(self.first + start, max(0, end - start))

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        """The lines start..end (exclusive) with these columns of a manifest."""
        for begin in range(start, end, ROWS):
            numbers = np.arange(self.first + begin, self.first + min(begin + ROWS, end))
            keys = pa.array([f"photos/{number // 10_000:05d}/{number:012d}.jpg" for number in numbers.tolist()])
            yield filled_table({"key": keys} if "key" in columns else {}, columns, len(numbers))


def write_partitions(scratch: Path, name: str, keys: int) -> None:
    """Partitions of keys without files, by the code of partition_dataset."""
    intervals = even_split(keys, keys // IN_A_PARTITION)
    source = os.fsencode(scratch / "absent")
    publish_partitions(scratch / name, source, "manifest", Keys(0, keys), intervals, {"source": "made up", "found": keys})


def publish_stand_ins(scratch: Path, output: Path, keys: int) -> None:
    """All parts but the last few as links to one file, and _job.json as if a launch had published them."""
    job = JobFile.read(output)
    assert job is not None, "a launch has begun it"
    for path in output.glob("part-*.parquet"):  # the last one ends where the launch was stopped
        path.unlink()
    job.parts.clear()
    stand_in, links = scratch / "stand-in", MOST_LINKS
    entry: dict[str, Any] = {}
    for partition in range(keys // IN_A_PARTITION):
        for start in range(0, IN_A_PARTITION, STEP_PICTURES):
            step = Step(partition, start, start + STEP_PICTURES)
            if partition == keys // IN_A_PARTITION - 1 and start >= IN_A_PARTITION - LEFT * STEP_PICTURES:
                break
            if links == MOST_LINKS:
                stand_in.unlink(missing_ok=True)
                stand_in.write_bytes(b"in place of a part")
                entry = {"ok": STEP_PICTURES, "errors": 0, "stages": {}, "sha256": file_sha256(stand_in)}
                links = 0
            os.link(stand_in, output / part_name(step))
            links += 1
            job.parts[part_name(step)] = entry
    job.write(output)


def measure_resume(scratch: Path, keys: int) -> None:
    """A resume of `keys` keys and of a tenth of them."""
    (scratch / "absent").mkdir()
    for count in (keys // 10, keys):
        data, output = f"keys-{count}", f"resumed-{count}"
        write_partitions(scratch, data, count)
        run_steps(scratch, data, output, 20)
        publish_stand_ins(scratch, scratch / output, count)
        words = ("--data_dir", data, "--output", output)
        found = measured(scratch, *words)
        done = count - LEFT * STEP_PICTURES
        if f"resume: {done} of {count} records are done" not in found.text:
            raise SystemExit(found.text)
        print(f"resume of {count:,} keys, {count // STEP_PICTURES:,} parts, and {LEFT} steps: {found.seconds:.1f} s, "
              f"processor time {found.cpu_s:.1f} s", flush=True)  # fmt: skip
        tell("  peak memory of the launcher", found.peak / MIB, "MiB", 1000)


def main() -> None:
    """Measure what was asked for in a scratch folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("archives", "resume"), default=["archives", "resume"])
    parser.add_argument("--records", type=int, default=10_000_000, help="in archives")
    parser.add_argument("--keys", type=int, default=100_000_000, help="of the job that is resumed")
    parser.add_argument("--steps", type=int, default=300, help="of 1,000 records after which a launch is stopped")
    parser.add_argument("--scratch", help="folder for a few GB that is removed at the end; default: the system's")
    given = parser.parse_args()
    print("\n".join(heading(conditions(is_quick=False))), flush=True)
    with tempfile.TemporaryDirectory(dir=given.scratch) as name:
        scratch = Path(name)
        make_network(scratch)
        if "archives" in given.only:
            measure_archives(scratch, given.records, given.steps)
        if "resume" in given.only:
            measure_resume(scratch, given.keys)
    if over:
        raise SystemExit(f"over their bounds: {'; '.join(over)}")


if __name__ == "__main__":
    main()
