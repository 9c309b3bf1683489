"""bulkinfer bench --tune: a few plans of streams and threads against the one that infer_launch would take, end to end.

All plans take turns in every round, so that other work on the host affects them equally. A plan replaces the one before it only
by the rule of `verdict`; what the rule leaves open is reported as not decided.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from bulkinfer.bench.measurement import Measurement
from bulkinfer.bench.report import Quartiles
from bulkinfer.bench.runs import FIRST_GUESS, Bench, warn_of_error_rows
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError
from bulkinfer.host.cores import ThreadPlan, loader_processes_for
from bulkinfer.host.number_text import rate_text

log = logging.getLogger("bulkinfer")

_LEAST_ROUNDS = 3
_BETTER = 1.03  # a smaller gain is not worth a change of the default plan
_HOPELESS = 0.7  # of the plan without tuning, in each of the rounds so far: no further round would change that
_HOPELESS_ROUNDS = 2  # at least: in a single round other work on the host can be the cause
_START_S = 4.0  # a measurement takes so much more than its seconds, at most
_COUNTED_STREAMS = (1, 2, 3)  # of a worker on a GPU

REPLACES, SLOWER, OPEN, DROPPED = "replaces", "not faster", "not decided", "dropped, far slower in each round"


def verdict(challenger: Sequence[float], incumbent: Sequence[float]) -> str:
    """REPLACES if over at least 3 rounds the median is 3 % better and the lower quartile above the incumbent's median.

    Else SLOWER if the median is not above the incumbent's, or OPEN.
    """
    if min(len(challenger), len(incumbent)) < _LEAST_ROUNDS:
        return OPEN
    new, old = Quartiles.of(challenger), Quartiles.of(incumbent)
    if new.median >= _BETTER * old.median and new.lower > old.median:
        return REPLACES
    return OPEN if new.median > old.median else SLOWER


def alternatives(plan: ThreadPlan, cores: int, config: LaunchConfig, *, counted: bool) -> list[ThreadPlan]:
    """`plan` first, then others that share a worker's cores out differently; what the user fixed stays.

    Loader threads beyond the cores can pay where reading waits, fewer where the network needs the cores.
    """
    share = max(1, cores // plan.num_devices)
    half = max(1, share // 2)
    loaders = [share, half, share + half]
    if counted:
        shapes = [(streams, plan.threads_per_stream, share) for streams in _COUNTED_STREAMS]
        shapes += [(plan.streams, plan.threads_per_stream, threads) for threads in loaders]
    else:
        shapes = [(share, 1, threads) for threads in loaders]
        shapes += [(half, max(1, share // half), share), (1, share, share), (share + 1, 1, share)]
    found = [plan]
    for streams, threads, share_of_workers in shapes:
        workers = config.num_workers or share_of_workers
        other = replace(
            plan,
            streams=config.streams or streams,
            threads_per_stream=threads,
            num_workers=workers,
            loader_processes=loader_processes_for(config.loader_processes, workers),
        )
        if other not in found:
            found.append(other)
    return found


def short(plan: ThreadPlan) -> str:
    """The name of a plan: streams x threads + loader threads."""
    return f"{plan.streams} x {plan.threads_per_stream} + {plan.num_workers}"


def compare(
    names: Sequence[str], run: Callable[[str], float], *, tune_s: float, max_rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Rates of each plan from whole rounds, as many as fit into `tune_s`, judging by the longest measurement so far.

    A plan that has no chance against the first is not measured again, and its list is shorter.
    """
    start, longest = clock(), 0.0
    rates: dict[str, list[float]] = {name: [] for name in names}
    racing = list(names)
    for _ in range(max(max_rounds, _LEAST_ROUNDS)):
        measured: dict[str, float] = {}
        for name in racing:
            before = clock()
            if before - start + longest > tune_s:
                return rates
            measured[name] = run(name)
            longest = max(longest, clock() - before)
        for name, rate in measured.items():
            rates[name].append(rate)
        first = rates[names[0]]
        if len(first) >= _HOPELESS_ROUNDS:
            racing = [name for name in racing if any(a >= _HOPELESS * b for a, b in zip(rates[name], first, strict=True))]
        if len(racing) == 1:
            break
    return rates


def decide(rates: dict[str, list[float]]) -> tuple[str, dict[str, str]]:
    """The winner, and the verdict on each other plan. Plans challenge the winner so far in the order of their medians."""
    first, *others = rates
    winner, fates = first, {}
    for name in sorted(others, key=lambda name: Quartiles.of(rates[name] or [0.0]).median):
        was_dropped = len(rates[name]) < len(rates[first])
        fates[name] = DROPPED if was_dropped else verdict(rates[name], rates[winner])
        if fates[name] == REPLACES:
            winner = name
    return winner, fates


def tune(place: Bench, *, tune_s: float, max_rounds: int) -> tuple[ThreadPlan, list[str], dict[str, Any]]:
    """Compare plans, and log the result; returns the winner, the lines about it, and its content for bench.json.

    Raises RunError if no round fits into `tune_s`.
    """
    job = place.job
    several = alternatives(place.plan, place.budget.usable, job.config, counted=job.choice.is_counted)
    plans = {short(plan): plan for plan in several}
    first = next(iter(plans))
    place = replace(place, seconds=seconds_each(len(plans), tune_s, place.seconds))
    log.info(
        f"tuning: {len(plans)} plans (streams x threads + loader threads) for up to {tune_s:.0f} s, {place.seconds} s each; "
        f"{first} is the plan without tuning"
    )
    runs: list[tuple[str, Measurement]] = []
    expected = [FIRST_GUESS * place.budget.usable / place.plan.num_devices]

    def run(name: str) -> float:
        measured, _ = place.run("end_to_end", plans[name], expected[0], name=f"plan-{name.replace(' ', '')}")
        expected[0] = measured.images_per_s / place.plan.num_devices
        runs.append((name, measured))
        log.info(f"  {name}: {rate_text(measured.images_per_s)}")
        return measured.images_per_s

    rates = compare(list(plans), run, tune_s=tune_s, max_rounds=max_rounds, clock=time.perf_counter)
    if not rates[first]:
        one_round = f"one round of {len(plans)} plans, {place.seconds} s each and the time to start"
        raise RunError(f"--tune_s {tune_s:g} is too short for {one_round}: give it more, or less --seconds")
    warn_of_error_rows([measured for _, measured in runs])
    winner, fates = decide(rates)
    lines = format_lines(rates, winner, fates)
    if dropped := len(runs) - sum(map(len, rates.values())):
        lines.append(
            f"not counted: {dropped} measurement(s) of a last round that did not fit into --tune_s {tune_s:g} as a whole"
        )
    for line in lines:
        log.info(line)
    content = {
        "winner": winner,
        "fates": fates,
        "images_per_s": {name: asdict(Quartiles.of(values)) for name, values in rates.items() if values},
        "plans": {name: asdict(plan) for name, plan in plans.items()},
        "seconds_each": place.seconds,
        "num_runs": len(runs),
        "num_runs_not_counted": dropped,
        "runs": [{"plan": name, **measured.as_json()} for name, measured in runs],
    }
    return plans[winner], lines, content


def seconds_each(num_plans: int, tune_s: float, asked: int) -> int:
    """Seconds of a measurement: as asked, or fewer, so that the rounds that a decision needs fit; at least 1."""
    return max(1, min(asked, int(tune_s / (num_plans * _LEAST_ROUNDS) - _START_S)))


def format_lines(rates: dict[str, list[float]], winner: str, fates: dict[str, str]) -> list[str]:
    """Figures and verdict of each plan, one line each; then what was not decided."""
    lines = []
    for name, values in rates.items():
        found = Quartiles.of(values or [0.0])
        figures = f"{rate_text(found.median)}, {found.lower:.1f} .. {found.upper:.1f} in {len(values)} round(s)"
        beaten = ", beaten" if name != winner else ""
        fate = f", {fates[name]}" if fates.get(name, REPLACES) != REPLACES else beaten
        lines.append(f"{name}: {figures if values else 'not measured'}{fate}")
    first = next(iter(rates))
    lines.append(f"winner: {winner}" + (", the plan without tuning" if winner == first else ""))
    if undecided := [name for name, fate in fates.items() if fate == OPEN]:
        lines.append(
            f"not decided: {'; '.join(undecided)}: a plan must be {100 * (_BETTER - 1):.0f} % faster in the median of at least "
            f"{_LEAST_ROUNDS} rounds, with its lower quartile above the median to beat; longer --tune_s, --seconds and "
            "--rounds can decide it"
        )
    return lines
