"""What an option costs: updates of two runs in one process, in turn, which differ in it alone.

    python tools/bench/updates.py "--model cifar_resnet20 --micro_batch_size 32" --to="--ema 0.999"
    python tools/bench/updates.py "--model cifar_resnet20 --precision 16.16 --stochastic_rounding off" \\
        --to="--stochastic_rounding on"

Both train on one batch that stays on the device, so an update is all that is measured. Prints medians with quartiles: seconds
and processor seconds of an update, and their ratios of neighbours. Processor seconds count where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from bulkinfer.bench.report import Quartiles
from bulkinfer.commands.parse import parse
from bulkinfer.commands.train_words import COMMAND
from bulkinfer.host.process_setup import keep_freed_memory, spin_briefly
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.loop import updates
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.ranks.group import ALONE
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import set_up
from bulkinfer.train.update.step import never
from comparison import spread
from conditions import conditions, heading

WARM_UP = 3
FIXED = ["--dataset", "synthetic", "--validation", "none", "--steps", str(10**6)]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("options", help="of bulkinfer train, for both")
    parser.add_argument("--to", required=True, help="further options of the second run, which win")
    parser.add_argument("--rounds", type=int, default=36)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/updates-<time>.json")
    return parser.parse_args()


def updates_of(options: str) -> Iterator[Any]:
    """The updates of a run, one after the other."""
    config = parse(COMMAND, TrainConfig, [*FIXED, *shlex.split(options)])
    training, _ = set_up(with_defaults(with_data_found(config)), World(), ALONE)
    return updates(training, never)


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    output = given.output or Path("logs") / f"updates-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    spin_briefly()
    keep_freed_memory()
    torch.set_num_threads(given.threads)
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    runs = (updates_of(given.options), updates_of(f"{given.options} {given.to}"))
    wall: tuple[list[float], list[float]] = ([], [])
    processor: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + given.rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            start, start_cpu = time.perf_counter(), time.process_time()
            next(runs[which])
            if number >= WARM_UP:
                wall[which].append(time.perf_counter() - start)
                processor[which].append(time.process_time() - start_cpu)
    print("| | without | with | with / without |", "|---|---|---|---|", sep="\n")
    for name, (one, other) in (("ms of an update", wall), ("processor ms", processor)):
        shown = [spread(asdict(Quartiles.of([1000 * value for value in values])), 1) for values in (one, other)]
        ratios = Quartiles.of([new / old for old, new in zip(one, other, strict=True)])
        print(f"| {name} | {' | '.join(shown)} | {spread(asdict(ratios), 3)} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "wall_s": wall, "processor_s": processor}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
