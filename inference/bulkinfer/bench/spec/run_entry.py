"""Runs one entry: what it needs done before, then its variants in rounds, in alternating order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.commands import environment_of, expanded, folder_of, words_of
from bulkinfer.bench.spec.entry import Entry, Variant
from bulkinfer.bench.spec.extract import STDERR, STDOUT, samples_of
from bulkinfer.bench.spec.figures import Run, figures_of, ratios_of
from bulkinfer.bench.spec.process import run_limited
from bulkinfer.bench.spec.values import value_text
from bulkinfer.errors import RunError, UsageError
from bulkinfer.host.number_text import duration_text
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")

DONE, FAILED, LEFT_OUT = "done", "failed", "left out"


@dataclass(frozen=True)
class Settings:
    """What all entries share: the file of benchmarks, the folder of the results, the longest time of a command."""

    spec: Path
    folder: Path
    timeout_s: float


def run_entry(entry: Entry, settings: Settings) -> dict[str, Any]:
    """Run an entry; returns its result as it goes into the results file. A failure is in it, and ends this entry alone."""
    runs: list[Run] = []
    found: dict[str, Any] = {"status": DONE, "reason": "", "exit_code": 0, "ratios": []}
    try:
        _prepare(entry, settings)
        for number in range(1, entry.num_runs + 1):
            for variant in entry.variants if number % 2 else reversed(entry.variants):
                runs.append(_run(entry, variant, number, settings))
        found["ratios"] = ratios_of(entry, runs)
    except (RunError, UsageError) as error:
        found |= {"status": FAILED, "reason": str(error), "exit_code": error.exit_code}
    return {**description_of(entry), **found, "runs": [asdict(run) for run in runs], "figures": figures_of(entry, runs)}


def description_of(entry: Entry) -> dict[str, Any]:
    """What the tables need to know of an entry, and by which --resume sees that it is the same one."""
    return {
        "description": entry.description,
        "table": entry.table,
        "cmd": entry.cmd,
        "before": list(entry.before),
        "env": entry.env,
        "location": entry.location,
        "rounds": entry.rounds,
        "variants": {variant.name: variant.values for variant in entry.variants},
        "metrics": {metric.name: asdict(metric) for metric in entry.metrics},
        "shown": [metric.name for metric in entry.shown],
    }


def _prepare(entry: Entry, settings: Settings) -> None:
    """Run the commands that come before, each once, though several variants may have it."""
    place = Place(entry.name, "pre_run_commands")
    folder = settings.folder / entry.name / "before"
    done: list[list[str]] = []
    for command in entry.before:
        for variant in entry.variants:
            words = _words(command, entry, variant, folder, place)
            if words not in done:
                done.append(words)
                _execute(words, entry, f"{entry.name}: before", folder / str(len(done)), settings)


def _run(entry: Entry, variant: Variant, number: int, settings: Settings) -> Run:
    """One run of a variant. Raises RunError if its command fails, UsageError if a figure is missing."""
    folder = settings.folder / entry.name / variant.name / str(number)
    shown = entry.name if variant.name == entry.name else f"{entry.name}: {variant.name}"
    words = _words(entry.cmd, entry, variant, folder, Place(entry.name, "cmd"))
    seconds = _execute(words, entry, shown, folder, settings)
    samples = samples_of(entry.metrics, folder, Place(shown))
    run = Run(variant.name, number, seconds, str(folder.relative_to(settings.folder)), samples)
    figures = figures_of(entry, [run])[variant.name]
    said = ", ".join(f"{metric.label} {value_text(figures[metric.name]['value'], metric.digits)}" for metric in entry.shown)
    log.info(f"{shown}: round {number} of {entry.num_runs}, {duration_text(seconds)}: {said}")
    return run


def _words(command: str, entry: Entry, variant: Variant, folder: Path, place: Place) -> list[str]:
    environment = environment_of(entry)
    built_in = {"run_dir": str(folder.absolute()), "rounds": str(entry.rounds)}
    return [expanded(word, environment) for word in words_of(command, variant.values, built_in, place)]


def _execute(words: Sequence[str], entry: Entry, shown: str, folder: Path, settings: Settings) -> float:
    """Run one command; returns its seconds. Raises RunError if it fails."""
    folder.mkdir(parents=True)
    limits = [limit for limit in (entry.timeout_s, settings.timeout_s) if limit]
    ended = run_limited(
        words, cwd=folder_of(entry, settings.spec)[0], environment=environment_of(entry),
        stdout=folder / STDOUT, stderr=folder / STDERR, timeout_s=min(limits, default=0.0),
    )  # fmt: skip
    if ended.failure:
        raise RunError(f"{shown}: {words[0]}: {ended.failure}; see {printable_path(folder)}")
    return ended.seconds
