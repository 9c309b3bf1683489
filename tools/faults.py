"""Random faults in launches, each followed by the same command again; see tools/faults. Parts are those of tests/faults/."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.faults.matrix import CELLS, LEFT_OUT, LOADER_CELLS, Cell
from tests.faults.points import Plan
from tests.faults.scene import NOT_REACHED, Place, Scene, run_cell
from tests.faults.whole_runs import WHOLE_RUNS

_WHOLE_SHARE = 0.4  # of the picks: faults of whole runs, whose moments are random in themselves


@dataclass(frozen=True)
class Pick:
    """One disturbed job to be: what it is called, and what runs it."""

    group: str
    name: str
    run: Callable[[Place, Path], list[str]]


def count_hits(place: Place, folder: Path) -> Counter[tuple[str, str]]:
    """How often an undisturbed launch with one worker comes by each point."""
    scene, log = Scene(place, folder), folder / "hits.txt"
    scene.launch("--num_devices=1", plan=Plan(str(scene.flag), log=str(log)))
    lines = (line.split("\t") for line in log.read_text().splitlines())
    return Counter((point, side) for _role, point, side in lines)


def pick(random_: random.Random, hits: Counter[tuple[str, str]], words: list[str]) -> Pick:
    """A random fault with a random moment and a random number of workers."""
    cells = [cell for cell in (*CELLS, *LOADER_CELLS) if not words or any(word in cell.name for word in words)]
    wholes = [name for name in WHOLE_RUNS if not words or any(word in name for word in words)]
    if wholes and (not cells or random_.random() < _WHOLE_SHARE):
        name, seed = random_.choice(wholes), random_.getrandbits(32)
        return Pick(name, name, lambda place, folder: WHOLE_RUNS[name](place, folder, random.Random(seed)))
    cell, workers = random_.choice(cells), random_.randint(1, 3)
    if cell.engine == "local" and not cell.loader_processes:
        cell = replace(cell, hit=random_.randint(1, max(1, hits[cell.point, cell.side] // workers)))
    return Pick(
        cell.fault, f"{cell.name}, {workers} workers", lambda place, folder: run_cell(place, cell, folder, num_devices=workers)
    )


def run_all(args: argparse.Namespace, folder: Path) -> int:
    """Run the picks; print what fails at once, and a table at the end. Returns how many were not identical."""
    random_ = random.Random(args.seed)
    place = Place.make(folder / "place")
    hits = count_hits(place, folder / "hits")
    same, wrong, missed = Counter[str](), Counter[str](), 0

    def run(number: int) -> tuple[str, list[str]]:
        chosen, scene = picks[number], folder / f"run-{number:05d}"
        troubles = chosen.run(place, scene)
        for trouble in troubles if troubles != [NOT_REACHED] else ():
            print(f"run {number}: {chosen.name}: {trouble}", flush=True)
        if not troubles or troubles == [NOT_REACHED]:
            shutil.rmtree(scene)
        return chosen.group, troubles

    picks: list[Pick] = []
    began = time.monotonic()
    with ThreadPoolExecutor(args.at_once) as pool:
        while (left := args.runs - same.total() - wrong.total()) > 0:
            start = len(picks)
            picks += [pick(random_, hits, args.only) for _ in range(left)]
            for group, troubles in pool.map(run, range(start, len(picks))):
                if troubles == [NOT_REACHED]:
                    missed += 1  # fewer hits than in the launch that was counted: another one is picked
                else:
                    (wrong if troubles else same)[group] += 1
                if (done := same.total() + wrong.total()) % 20 == 0:
                    print(f"{done} of {args.runs} done, {wrong.total()} wrong", flush=True)
    tell(args, same, wrong, missed, time.monotonic() - began)
    return wrong.total()


def tell(args: argparse.Namespace, same: Counter[str], wrong: Counter[str], missed: int, seconds: float) -> None:
    """The table."""
    print(f"\n{'fault':<48}{'runs':>6}{'identical':>12}")
    for group in sorted({*same, *wrong}):
        print(f"{group:<48}{same[group] + wrong[group]:>6}{same[group]:>12}")
    print(
        f"\nseed {args.seed}, {seconds:.0f} s; {missed} more picks came too late in their launch to happen, and were replaced"
    )
    print(f"{same.total()} of {same.total() + wrong.total()} identical to the undisturbed run")


def tell_matrix() -> None:
    """All cells, and all reasons."""
    name: Cell | str
    for name in (*CELLS, *LOADER_CELLS, *WHOLE_RUNS):
        print(name if isinstance(name, str) else f"{name.name}: exit code {name.code}")
    print()
    for (point, side, fault), reason in LEFT_OUT.items():
        print(f"left out: {fault} {side} {point}: {reason}")
    print(
        f"\n{len(CELLS)} cells, {len(LOADER_CELLS)} beside loader processes, {len(WHOLE_RUNS)} faults of whole runs, "
        f"{len(LEFT_OUT)} pairs left out"
    )


def main() -> int:
    """Parse and run; 0 if every run ended as the undisturbed one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background deaf to it
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/faults")
    parser.add_argument("--runs", type=int, default=200, help="disturbed jobs")
    parser.add_argument("--seed", type=int, default=1, help="of the random picks")
    parser.add_argument("--at_once", type=int, default=2, help="jobs at a time")
    parser.add_argument("--only", nargs="+", default=[], help="only faults whose name holds one of these")
    parser.add_argument("--list", action="store_true", help="print the matrix and stop")
    args = parser.parse_args()
    if args.list:
        tell_matrix()
        return 0
    folder = Path(tempfile.mkdtemp(prefix="bulkinfer-faults-"))
    failed = run_all(args, folder)
    if failed:
        print(f"what they left is in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
