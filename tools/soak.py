"""A long job under random kills; see tools/soak. Every picture has the colour that its name says, and so must its row."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bulkinfer.files.own_folder import own_folder

from tests.commands import children, command
from tests.models import SIZE, write_tiny_model

_PER_FOLDER = 1000
_COLOURS = 10_007  # a prime: no step, batch or folder has as many records


def solid_png(number: int) -> bytes:
    """A picture of one colour: the number in three bytes. Tiny: its pixels are an index into a palette of one."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", SIZE, SIZE, 1, 3, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"PLTE", number.to_bytes(3, "big"))
            + chunk(b"IDAT", _PIXELS) + chunk(b"IEND", b""))  # fmt: skip


_PIXELS = zlib.compress(bytes((1 + SIZE // 8) * SIZE))


def write_pictures(folder: Path, count: int) -> None:
    """folder/0000/00000000.png and so on, each named by its number; files of one colour are one file with many names."""
    first: dict[int, Path] = {}
    for number in range(count):
        if number % _PER_FOLDER == 0:
            (folder / f"{number // _PER_FOLDER:04d}").mkdir(parents=True)
        path = folder / f"{number // _PER_FOLDER:04d}" / f"{number:08d}.png"
        if number < _COLOURS:
            path.write_bytes(solid_png(colour_of(number)))
            first[number] = path
        else:
            path.hardlink_to(first[number % _COLOURS])


def colour_of(number: int) -> int:
    """The colour that the name of a picture says, in 24 bits: one of 10,007, far from that of its neighbours."""
    return number % _COLOURS * 10_368_889 % (1 << 24)  # odd, so that no two are the same


@dataclass
class Life:
    """What one launcher process used, from when its workers had published a part to its end."""

    samples: list[tuple[float, int, int, int]] = field(default_factory=list)  # seconds, resident bytes, descriptors, threads

    def sample(self, pid: int, seconds: float) -> None:
        """One look at a process; none if it has just gone."""
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            self.samples.append((seconds, int(status["VmRSS"].split()[0]) * 1024, descriptors, int(status["Threads"])))
        except (OSError, KeyError):
            return

    def told(self) -> str:
        """Its first sample beside its last one."""
        if len(self.samples) < 2:
            return "too short to tell"
        (start_s, *start), (end_s, *end) = self.samples[0], self.samples[-2]  # the last one may be of a process that is ending
        memory = f"memory {start[0] / 1e6:.1f} -> {end[0] / 1e6:.1f} MB"
        rest = f"descriptors {start[1]} -> {end[1]}, threads {start[2]} -> {end[2]}"
        return f"{start_s:.0f} s to {end_s:.0f} s: {memory}, {rest}"


def launch_words(args: argparse.Namespace, folder: Path) -> list[object]:
    """The command that is run until it ends by itself."""
    return [
        *("--model_path", folder / "models", "--data_dir", folder / "photos"),
        *("--log_path", folder / "logs", "--output", folder / "out"),
        *("--model_name", "tiny", "--device", "cpu", "--precision", "fp32", "--save", "embedding"),
        *("--batch_size", args.batch_size, "--batches_per_step", args.batches_per_step, "--num_devices", args.workers),
    ]


def soak(args: argparse.Namespace, folder: Path) -> tuple[Counter[str], list[Life]]:
    """Run the job to its end, killing; returns what was killed how often, and the launchers' lives."""
    random_, killed, lives = random.Random(args.seed), Counter[str](), list[Life]()
    words = launch_words(args, folder)
    deaths_left = args.launcher_kills
    while True:
        life = Life()
        lives.append(life)
        with (folder / "launches.txt").open("ab") as output:
            process = subprocess.Popen(command("infer_launch", *words), stdout=output, stderr=output, cwd=folder)
        began, parts_before = time.monotonic(), count_parts(folder)
        dies_after_s = random_.uniform(5, args.launcher_life_s) if deaths_left else float("inf")
        next_kill = began + random_.uniform(0.5, 2 * args.every_s)
        while process.poll() is None:
            now = time.monotonic()
            if count_parts(folder) > parts_before:
                life.sample(process.pid, now - began)
            if now - began > dies_after_s:
                killed["launcher"] += 1
                deaths_left -= 1
                process.kill()
                break
            if now >= next_kill and (workers := children(process.pid)):
                os.kill(random_.choice(workers), signal.SIGKILL)
                killed["workers"] += 1
                next_kill = now + random_.uniform(0.5, 2 * args.every_s)
            time.sleep(0.2)
        code = process.wait()
        print(f"launcher {len(lives)} ended with {code} after {time.monotonic() - began:.0f} s; {life.told()}", flush=True)
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"the launch failed: {(folder / 'launches.txt').read_text()[-2000:]}")
        if code == 0:
            return killed, lives


def count_parts(folder: Path) -> int:
    """How many parts are published."""
    return sum(1 for _ in (folder / "out").glob("part-*"))


def judge(output: Path, count: int) -> tuple[int, int, int]:
    """How many records are lost, doubled, and wrong: not ok, or of another colour than the name says."""
    seen, wrong = np.zeros(count, np.int64), 0
    for part in sorted(output.glob("part-*.parquet")):
        table = pq.read_table(part)
        numbers = np.array([int(Path(key).stem) for key in table["key"].to_pylist()])
        np.add.at(seen, numbers, 1)
        expected = np.array([list(colour_of(int(number)).to_bytes(3, "big")) for number in numbers], np.float32)
        found = np.stack([np.zeros(3) if row is None else np.asarray(row) for row in table["embedding"].to_pylist()]) * 255
        is_ok = np.array(table["status"].to_pylist()) == "ok"
        wrong += int((~is_ok | (np.abs(found - expected).max(axis=1) > 0.01)).sum())
    return int((seen == 0).sum()), int((seen > 1).sum()), wrong


def main() -> int:
    """Parse and run; 0 if nothing is lost, doubled or wrong."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/soak")
    parser.add_argument("--records", type=int, default=200_000, help="pictures")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--every_s", type=float, default=3.0, help="mean seconds from kill to kill")
    parser.add_argument("--launcher_kills", type=int, default=4, help="how often the launcher is killed, too")
    parser.add_argument("--launcher_life_s", type=float, default=20.0, help="at most, of one that is killed, in seconds")
    parser.add_argument("--batch_size", type=int, default=8, help="pictures a batch")
    parser.add_argument("--batches_per_step", type=int, default=50, help="batches a step")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bulkinfer-soak-"))
    write_tiny_model(folder / "models", batch_sizes=(args.batch_size,))
    write_pictures(folder / "photos", args.records)
    began = time.monotonic()
    killed, lives = soak(args, folder)
    lost, doubled, wrong = judge(folder / "out", args.records)
    verdict = subprocess.run(command("bulkinfer", "verify", folder / "out"), capture_output=True, text=True, check=False)
    victims = f"{killed['workers']} workers, {killed['launcher']} launchers"
    print(f"{args.records} records in {time.monotonic() - began:.0f} s; killed: {victims}")
    print(f"lost {lost}, doubled {doubled}, wrong {wrong}; verify: exit code {verdict.returncode}")
    print(f"the last launcher, {lives[-1].told()}")
    left = [path.name for path in own_folder(folder / "out").iterdir() if path.name != "_job.json"]
    print(f"left behind: {', '.join(left) or 'nothing'}")
    good = not (lost or doubled or wrong or verdict.returncode or left)
    if good:
        shutil.rmtree(folder)
    else:
        print(f"everything is in {folder}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
