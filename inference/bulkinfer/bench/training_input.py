"""bulkinfer bench --data_only: how many pictures a second the input of bulkinfer train gives, without a network.

Each part is measured alone, in turns: reading, decoding and cropping of bytes that are in memory, what makes an input of a
batch, and all of them as the training loop runs them. Pictures, order, threads and augmentation are those of the training.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bulkinfer.bench.folder import BENCH_FILE, ending_on_signals, machine_conditions, measured_in
from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.report import Quartiles
from bulkinfer.errors import PictureError
from bulkinfer.files.atomic import safe_name
from bulkinfer.files.json_file import write_json
from bulkinfer.host.cores import core_budget
from bulkinfer.host.number_text import rate_text
from bulkinfer.results.log_folder import dated
from bulkinfer.train.data.input_parts import TOGETHER, Counts, parts_of
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.ranks.group import ALONE, share_cores
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import set_up

log = logging.getLogger("bulkinfer")

_WARM_UP_BATCHES = 8  # more than are prepared in advance


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement of a part. The warm-up is counted in `warm_up_s` alone."""

    pictures: int
    seconds: float
    cpu_s: float
    warm_up_s: float

    @property
    def images_per_s(self) -> float:
        return self.pictures / self.seconds

    @property
    def cpu_s_per_picture(self) -> float:
        return self.cpu_s / self.pictures

    @property
    def cores(self) -> float:
        """The cores that it used, on average."""
        return self.cpu_s / self.seconds

    def as_json(self) -> dict[str, float]:
        return asdict(self) | {name: getattr(self, name) for name in ("images_per_s", "cpu_s_per_picture", "cores")}


def bench_training_input(config: BenchConfig) -> int:
    """Measure, log the figures and write bench.json; returns the exit code. Raises UsageError if there are no such data."""
    with ending_on_signals():
        share_cores()
        options = with_defaults(with_data_found(config.train_config()))
        begin = time.perf_counter()
        training, plan = set_up(options, World(), ALONE)
        open_s = time.perf_counter() - begin
        for name in ("data", "batches"):
            log.info(f"{name}: {plan[name]}")
        log.info(f"cores: {core_budget()}; {options.num_workers or core_budget().usable} loader threads")
        log_dir = dated(Path(config.log_path), f"bench-data-{safe_name(options.dataset)}")
        with measured_in(log_dir):
            try:
                rounds = measure_rounds(parts_of(training), config.seconds, config.rounds)
            except PictureError as error:
                raise PictureError(f"{error}: repair it, or leave it out with --on_bad_picture skip") from error
            for line in report(rounds):
                log.info(line)
            path = log_dir / BENCH_FILE
            write_json(path, {**machine_conditions(config, core_budget()), "plan": plan, "open_s": open_s, **in_json(rounds)})
            log.info(f"bench: {path}")
    return 0


def measure(counts: Counts, seconds: float) -> Part:
    """Take batches for some seconds, after a warm-up."""
    begin = time.perf_counter()
    for _ in range(_WARM_UP_BATCHES):
        next(counts)
    start, cpu, pictures = time.perf_counter(), time.process_time(), 0
    for count in counts:
        pictures += count
        spent = time.perf_counter() - start
        if spent >= seconds and pictures:
            break
    found = Part(pictures, spent, time.process_time() - cpu, start - begin)
    counts.close()  # type: ignore[attr-defined] # a generator: its threads end
    return found


def measure_rounds(parts: dict[str, Callable[[], Counts]], seconds: float, count: int) -> list[dict[str, Part]]:
    """All parts in turn, `count` times."""
    log.info(f"measuring: {count} round(s) of {', '.join(parts)}; {seconds} s each, after {_WARM_UP_BATCHES} batches")
    rounds = []
    for number in range(1, count + 1):
        rounds.append({name: measure(begin(), seconds) for name, begin in parts.items()})
        rates = ", ".join(f"{name} {part.images_per_s:.1f}" for name, part in rounds[-1].items())
        log.info(f"round {number}: {rates} images/sec")
    return rounds


def report(rounds: list[dict[str, Part]]) -> list[str]:
    """The lines for people: medians with quartiles, and the part that costs most."""
    lines = [f"{'':<17}{'images/sec':>10}  {'quartiles':<20}{'CPU ms a picture':>16}{'cores':>7}"]
    rates, cpu_s, cores = (quartiles_of(rounds, figure) for figure in ("images_per_s", "cpu_s_per_picture", "cores"))
    for name, rate in rates.items():
        quartiles = f"{rate.lower:.1f} .. {rate.upper:.1f}"
        cost = f"{1000 * cpu_s[name].median:>16.3f}{cores[name].median:>7.2f}"
        lines.append(f"{name:<17}{rate.median:>10.1f}  {quartiles:<20}{cost}")
    costs = {name: found.median for name, found in cpu_s.items() if name != TOGETHER}
    most = max(costs, key=costs.__getitem__)
    share = 100 * costs[most] / sum(costs.values())
    lines.append(f"a training gets {rate_text(rates[TOGETHER].median)} at most; {share:.0f} % of the CPU time goes to: {most}")
    return lines


def quartiles_of(rounds: list[dict[str, Part]], figure: str) -> dict[str, Quartiles]:
    """A figure of each part, over the rounds."""
    return {name: Quartiles.of([getattr(found[name], figure) for found in rounds]) for name in rounds[0]}


def in_json(rounds: list[dict[str, Part]]) -> dict[str, Any]:
    """The figures with every measurement behind them."""
    figures = ("images_per_s", "cpu_s_per_picture", "cores", "warm_up_s")
    found = {figure: {name: asdict(value) for name, value in quartiles_of(rounds, figure).items()} for figure in figures}
    runs = [{name: part.as_json() for name, part in measured.items()} for measured in rounds]
    return {"num_runs": len(rounds) * len(rounds[0]), **found, "rounds": runs}
