"""The arithmetic of the comparisons: rates, ratios of alternating runs, agreement of answers, what benchmark_app says, tables.

Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bulkinfer.bench.report import Quartiles

OURS, DEVICE_ONLY = "ours", "ours --synthetic"
MIN_AGREEMENT = 0.98  # of the best classes; below, the two do different jobs
_STEPS = 16  # in a run of ours: the first one is not counted


class RefusedError(Exception):
    """A run that must not be compared, in one sentence."""


@dataclass(frozen=True, slots=True)
class Run:
    """One pass of one contestant in one round. `agreement` is None where no answers are written."""

    contestant: str
    round: int
    pictures: int
    seconds: float
    cpu_s: float
    agreement: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def images_per_s(self) -> float:
        return self.pictures / self.seconds

    @property
    def cpu_ms_per_picture(self) -> float:
        return 1000 * self.cpu_s / self.pictures

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "images_per_s": self.images_per_s, "cpu_ms_per_picture": self.cpu_ms_per_picture}


@dataclass(frozen=True, slots=True)
class Finished:
    """When (seconds since any fixed time) how many pictures were finished: one step, one batch."""

    time_s: float
    count: int


def between_steps(steps: Sequence[Finished]) -> tuple[int, float]:
    """Pictures and seconds between the first and the last finished step. Raises RefusedError with fewer than two."""
    if len(steps) < 2:
        raise RefusedError(f"the run had {len(steps)} step(s), and between the first and the last nothing: give more pictures")
    return sum(step.count for step in steps[1:]), steps[-1].time_s - steps[0].time_s


def from_ready(ready_s: float, steps: Sequence[Finished]) -> tuple[int, float]:
    """Pictures and seconds from a worker's readiness to its last published step."""
    if not steps:
        raise RefusedError("the run finished no step")
    return sum(step.count for step in steps), steps[-1].time_s - ready_s


def together(workers: Iterable[Sequence[Finished]]) -> float:
    """Pictures per second of several workers while all of them work: from when the last one has finished its first step, to
    when the first one has finished its last. Each worker's rate lies between the steps it finished in that time.

    Raises RefusedError if a worker finished fewer than two steps in it.
    """
    workers = [list(steps) for steps in workers]
    if not all(workers):
        raise RefusedError("a worker finished no step: give more pictures")
    start, end = max(steps[0].time_s for steps in workers), min(steps[-1].time_s for steps in workers)
    rate = 0.0
    for steps in workers:
        inside = [step for step in steps if start <= step.time_s <= end]
        if len(inside) < 2:
            raise RefusedError(f"a worker finished {len(inside)} step(s) while all of them worked: give more pictures")
        pictures, seconds = between_steps(inside)
        rate += pictures / seconds
    return rate


def agreement(expected: Mapping[str, int], answers: Mapping[str, int]) -> float:
    """The share of pictures with the same best class. Raises RefusedError if the pictures are not the same."""
    if expected.keys() != answers.keys():
        missing = len(expected.keys() - answers.keys())
        raise RefusedError(
            f"{missing} of {len(expected)} pictures have no answer, {len(answers.keys() - expected.keys())} are foreign"
        )
    return sum(answers[name] == best for name, best in expected.items()) / len(expected)


def judged(expected: Mapping[str, int], answers: Mapping[str, int]) -> float:
    """The agreement. Raises RefusedError if it is too small to be the same job."""
    share = agreement(expected, answers)
    if share < MIN_AGREEMENT:
        raise RefusedError(
            f"its best class is ours on {share:.1%} of the pictures, below {MIN_AGREEMENT:.0%}: not the same job"
        )
    return share


def enough_pictures(slowest: float, seconds: float, batch_size: int) -> int:
    """How many pictures keep a contestant of `slowest` pictures per second busy that long: whole steps of ours."""
    unit = _STEPS * batch_size
    return max(1, math.ceil(slowest * seconds / unit)) * unit


def batches_per_step(num_pictures: int, batch_size: int) -> int:
    """So that a run has about 16 steps."""
    return max(1, num_pictures // batch_size // _STEPS)


def read_benchmark_app(lines: list[str]) -> tuple[int, float, str]:
    """Iterations, seconds, and the precision that it says it computes in."""
    text = "".join(lines)
    count, duration = re.search(r"Count:\s+(\d+) iterations", text), re.search(r"Duration:\s+([\d.]+) ms", text)
    hint = re.search(r"INFERENCE_PRECISION_HINT: <Type: '(\w+)'>", text)
    if not (count and duration and hint):
        raise RefusedError(f"benchmark_app says neither count, duration nor precision: {''.join(lines[-3:])}")
    precision = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(hint[1], hint[1])
    return int(count[1]), float(duration[1]) / 1000, precision


def of(runs: Iterable[Run], contestant: str) -> list[Run]:
    """The runs of a contestant."""
    return [run for run in runs if run.contestant == contestant]


def ratios(runs: Sequence[Run], ours: str, peer: str) -> list[float]:
    """ours / peer, in pictures per second, of each round that has both."""
    by_round = {run.round: run.images_per_s for run in of(runs, peer)}
    return [run.images_per_s / by_round[run.round] for run in of(runs, ours) if run.round in by_round]


def rival(contestant: str) -> str:
    """Which of ours a contestant is compared to; empty for ours themselves."""
    if contestant in (OURS, DEVICE_ONLY):
        return ""
    return DEVICE_ONLY if contestant == "openvino" else OURS


def contestants_of(runs: Iterable[Run]) -> list[str]:
    """Their names in the order of their first runs."""
    return list(dict.fromkeys(run.contestant for run in runs))


def figures(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """By contestant: quartiles of rate, CPU time and ratio, number of runs."""
    found: dict[str, dict[str, Any]] = {}
    for name in contestants_of(runs):
        own = of(runs, name)
        found[name] = {
            "runs": len(own),
            "images_per_s": asdict(Quartiles.of([run.images_per_s for run in own])),
            "cpu_ms_per_picture": asdict(Quartiles.of([run.cpu_ms_per_picture for run in own])),
        }
        if (ours := rival(name)) and (shares := ratios(runs, ours, name)):
            found[name]["compared_to"] = ours
            found[name]["ours_over_peer"] = asdict(Quartiles.of(shares))
    return found


def spread(value: Mapping[str, float], digits: int) -> str:
    """median (lower quartile - upper quartile)."""
    return f"{value['median']:.{digits}f} ({value['lower']:.{digits}f} - {value['upper']:.{digits}f})"


def table(runs: Sequence[Run]) -> list[str]:
    """The rows of a Markdown table."""
    rows = [
        "| | precision | runs | images/s (quartiles) | CPU ms a picture (quartiles) | ours / peer (quartiles) | "
        "best class as ours in fp32 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in figures(runs).items():
        own = of(runs, name)
        shares = [run.agreement for run in own if run.agreement is not None]
        same = f"{min(shares):.1%}" if shares else "writes none" if name == "openvino" else ""
        ratio = spread(found["ours_over_peer"], 2) if "ours_over_peer" in found else ""
        rate, cpu = spread(found["images_per_s"], 1), spread(found["cpu_ms_per_picture"], 1)
        rows.append(f"| {name} | {own[0].facts.get('precision', '')} | {len(own)} | {rate} | {cpu} | {ratio} | {same} |")
    return rows
