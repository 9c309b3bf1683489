"""How fast each candidate of `--device auto` runs the network, each in a process of its own; measured once, and kept.

    python -m bulkinfer.launch.auto.device_trial PARENT_PID

reads a trial as JSON from stdin and answers with its rate.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.host.isolated_call import answer, ask
from bulkinfer.host.versions import processor, versions
from bulkinfer.model.measurements import keep, read_kept
from bulkinfer.runtime.providers import SessionSpec
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
    """One measurement that is kept; the facts under which it holds stand beside it."""

    images_per_s: dict[str, float]


def measure(trials: list[Trial], graph_sha256: str, kept: Path, *, only_kept: bool = False) -> dict[str, float | str]:
    """Pictures per second by provider, or the sentence of why it does not run; taken from the file `kept` if it is there.

    What is kept holds for this graph, these sessions and devices, this processor and these versions; where one does not run,
    nothing is. With `only_kept` nothing is measured, and the answer is empty if nothing is kept.
    """
    sessions = [{**asdict(trial), "session": {**asdict(trial.session), "graph": graph_sha256}} for trial in trials]
    facts = {"processor": processor(), "versions": versions(), "trials": sessions}
    providers = [trial.session.provider for trial in trials]
    for entry in read_kept(kept, "measured", _Entry):
        rates = entry["images_per_s"]
        is_whole = set(rates) == set(providers) and all(0 < rate < math.inf for rate in rates.values())
        if is_whole and all(entry.get(name) == value for name, value in facts.items()):
            return {name: rates[name] for name in providers}
    if only_kept:
        return {}
    log.info(f"device: auto measures {', '.join(providers)} once for this network")
    measured = {trial.session.provider: _one(trial) for trial in trials}
    if all(isinstance(value, float) for value in measured.values()):  # what fails today may be mended tomorrow
        keep(kept, "measured", _Entry, {**facts, "images_per_s": measured})
    return measured


def _one(trial: Trial) -> float | str:
    """Measured by a child process."""
    told: float | str = ask("bulkinfer.launch.auto.device_trial", asdict(trial), f"--device {trial.session.provider}")
    return told


def _rate(question: dict[str, Any]) -> float:
    """Pictures per second of the trial in `question`."""
    trial = Trial(**{**question, "session": SessionSpec(**question["session"])})
    os.sched_setaffinity(0, trial.cores)
    return warm_up(Session(trial.session, trial.outputs), trial.session.streams, _MEASURE_S)


if __name__ == "__main__":
    answer(_rate, lambda question: f"--device {question['session']['provider']}")
