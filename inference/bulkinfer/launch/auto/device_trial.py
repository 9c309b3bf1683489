"""Measures how fast each candidate of `--device auto` runs the network, once; the result is kept beside the graph.

    python -m bulkinfer.launch.auto.device_trial PARENT_PID

reads one trial as JSON from stdin, measures it in this process, and prints the rate.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.files.json_validation import mismatch
from bulkinfer.host.isolated_call import NoAnswer, answer, ask
from bulkinfer.host.versions import processor, versions
from bulkinfer.model.measurements import add_measurement, read_measurements
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec
from bulkinfer.runtime.session import Session, warm_up

log = logging.getLogger("bulkinfer")

KEPT_FILE = "fastest.json"
_MEASURE_S = 1.5


@dataclass(frozen=True, slots=True)
class Trial:
    """A session to try, what its devices are called, the outputs it gives, and the cores that it may use."""

    session: SessionSpec
    devices: list[str]
    outputs: list[str]
    cores: list[int]


class _Entry(TypedDict):
    """One kept measurement: the rates by provider. The conditions it holds for stand beside it.

    Where a provider does not run, `does_not_run` stands there too: the sentences that say why, by provider.
    """

    images_per_s: dict[str, float]


def measure(trials: list[Trial], graph_sha256: str, kept: Path, *, only_kept: bool = False) -> dict[str, float | str]:
    """Pictures per second by provider, or the sentence that says why it does not run; taken from the file `kept` if possible.

    A kept measurement holds for this graph, these sessions and devices, this processor and these versions. With `only_kept`
    nothing is measured, and the answer is empty if nothing is kept.
    """
    sessions = [{**asdict(trial), "session": {**asdict(trial.session), "graph": graph_sha256}} for trial in trials]
    facts = {"processor": processor(), "versions": versions(), "trials": sessions}
    providers = [trial.session.provider for trial in trials]
    for entry in read_measurements(kept, "measured", _Entry):
        if all(entry.get(name) == value for name, value in facts.items()) and (found := _whole(entry, providers)):
            again = f"; kept in {kept}, remove it to measure again"
            return {name: f"{value}{again}" if isinstance(value, str) else value for name, value in found.items()}
    if only_kept:
        return {}
    log.info(f"device: auto measures {', '.join(providers)} once for this network")
    measured = {trial.session.provider: _measure_apart(trial) for trial in trials}
    rates = {name: value for name, value in measured.items() if not isinstance(value, str)}
    failures = {name: value for name, value in measured.items() if isinstance(value, str)}
    # What a GPU fails on (a driver, a library, memory in use) may be repaired tomorrow, and the conditions would not show it;
    # a process that was killed, or too slow, may do better on a quieter machine.
    if rates and not any(PROVIDERS[name].is_counted or isinstance(why, NoAnswer) for name, why in failures.items()):
        add_measurement(
            kept, "measured", _Entry, {**facts, "images_per_s": rates, **({"does_not_run": failures} if failures else {})}
        )
    return measured


def _whole(entry: dict[str, Any], providers: list[str]) -> dict[str, float | str]:
    """What a kept entry says of each provider; empty unless it has one answer for each, and a usable rate among them."""
    rates, failures = entry["images_per_s"], entry.get("does_not_run", {})
    if mismatch(failures, dict[str, str]) or sorted([*rates, *failures]) != sorted(providers):
        return {}
    if not rates or not all(0 < rate < math.inf for rate in rates.values()):
        return {}
    found = {**rates, **failures}
    return {name: found[name] for name in providers}


def _measure_apart(trial: Trial) -> float | str:
    """The answer of a child process, so that a candidate that crashes or hangs fails by itself."""
    measured: float | str = ask("bulkinfer.launch.auto.device_trial", asdict(trial), f"--device {trial.session.provider}")
    return measured


def _rate(question: dict[str, Any]) -> float:
    """Pictures per second of the trial in `question`."""
    trial = Trial(**{**question, "session": SessionSpec(**question["session"])})
    os.sched_setaffinity(0, trial.cores)
    return warm_up(Session(trial.session, trial.outputs), trial.session.streams, _MEASURE_S)


if __name__ == "__main__":
    answer(_rate, lambda question: f"--device {question['session']['provider']}")
