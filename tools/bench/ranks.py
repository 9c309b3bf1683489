"""Training by several processes beside one: two ranks, two pipeline stages, and batch norm over both ranks.

    python tools/bench/ranks.py ranks_resnet20
    python tools/bench/ranks.py stages --rounds 9

Both commands of a case run in turn, each alone, on made-up pictures that cost no reading. Pictures per second are those between
the first line of training.csv and its last one, so neither starting nor warming up counts. Prints each run, and medians with
quartiles; the ratio is that of neighbours.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bulkinfer.bench.report import Quartiles
from comparison import RefusedError, Run, of, ratios, spread
from conditions import conditions, heading
from ours import LIMIT_S, SCRIPTS

SYNTHETIC = 50_000  # pictures in an epoch of --dataset synthetic


@dataclass(frozen=True)
class Case:
    """Two commands that take the same number of pictures an update."""

    model: str
    global_batch: int
    warm_up: int  # updates
    updates: int  # after them
    one: str  # options of the first command
    other: str  # options of the second one, whose rate is divided by that of the first


MICRO_8 = "--micro_batch_size 8 --gradient_accumulation 8"
CASES = {
    "ranks_resnet20": Case("cifar_resnet20", 256, 4, 24, "--micro_batch_size 256", "--micro_batch_size 128 --replicas 2"),
    "ranks_resnet50": Case("resnet50", 32, 1, 4, "--micro_batch_size 32", "--micro_batch_size 16 --replicas 2"),
    "stages": Case("resnet50", 64, 1, 2, MICRO_8, f"{MICRO_8} --pipeline_splits layer3.0 --pipeline_schedule 1f1b"),
    "norm_span": Case(
        "cifar_resnet20", 256, 4, 24, "--micro_batch_size 128 --replicas 2", "--micro_batch_size 128 --replicas 2 --norm_span 2"
    ),
    "norm_span_resnet50": Case(
        "resnet50", 32, 1, 4, "--micro_batch_size 16 --replicas 2", "--micro_batch_size 16 --replicas 2 --norm_span 2"
    ),
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/ranks-<time>.json")
    return parser.parse_args()


def run(case: Case, options: str, number: int, scratch: Path) -> Run:
    """Train with `options`; raises RefusedError with the command's last words if it fails."""
    logs = scratch / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    words = ["train", "--dataset", "synthetic", "--model", case.model, *options.split(), "--validation", "none"]
    words += ["--checkpoints_per_epoch", "0", "--steps", str(case.warm_up + case.updates), "--log_path", str(logs)]
    words += ["--logs_per_epoch", str(SYNTHETIC // (case.global_batch * case.warm_up))]
    done = subprocess.run([SCRIPTS / "bulkinfer", *words], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RefusedError(f"bulkinfer train {options} ended with {done.returncode}: {done.stderr[-2000:]}")
    table = logs / "latest" / "training.csv"
    rows = list(csv.DictReader(table.open()))
    updates, seconds = (float(rows[-1][name]) - float(rows[0][name]) for name in ("step", "total_s"))
    assert updates >= case.updates / 2, f"only {updates:.0f} updates are between the lines of {table}"
    return Run(options, number, int(updates) * case.global_batch, seconds, 0.0)


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    output = given.output or Path("logs") / f"ranks-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    case, runs = CASES[given.case], []
    found = conditions(is_quick=False)
    print("\n".join([*heading(found), f"{given.case}: {case.model}, {case.global_batch} pictures an update"]), flush=True)
    with tempfile.TemporaryDirectory(prefix="ranks-") as scratch:
        for number in range(given.rounds):
            for options in (case.one, case.other) if number % 2 else (case.other, case.one):
                runs.append(run(case, options, number, Path(scratch)))
                print(f"  {number}: {runs[-1].images_per_s:8.1f} images/s  {options}", flush=True)
    for options in (case.one, case.other):
        own = Quartiles.of([each.images_per_s for each in of(runs, options)])
        print(f"{spread(asdict(own), 1)} images/s: {options}")
    print(f"second / first: {spread(asdict(Quartiles.of(ratios(runs, case.other, case.one))), 3)}")
    output.parent.mkdir(parents=True, exist_ok=True)
    both = (("first", case.one), ("second", case.other))
    rates = {name: [each.images_per_s for each in of(runs, options)] for name, options in both}
    figures = {**rates, "ratio": ratios(runs, case.other, case.one), "runs": [each.as_json() for each in runs]}
    output.write_text(json.dumps({**found, "case": asdict(case), **figures}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
