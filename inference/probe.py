"""How fast each candidate of `--device auto` runs the network, each in a process of its own; measured once, and kept.

    python -m inference.probe PARENT_PID

reads a trial as JSON from stdin and prints its rate. A candidate that crashes, hangs or takes memory for ever does so alone.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from inference.errors import BulkinferError, first_line
from inference.lifeline import die_with_parent
from inference.paths import read_json, write_json
from inference.providers import SessionSpec
from inference.runlog import processor, say, versions, warn
from inference.session import Session, warm_up
from inference.structure import misfit

KEPT_FILE = "fastest.json"
_ANSWER = "measured: "
_KEPT_BYTES = 1 << 20  # more was not written by us
_KEPT_ENTRIES = 50  # the newest: hosts and versions come and go
_MEASURE_S = 1.5
_LIMIT_S = 300.0  # opening a large network on a slow disk takes its time; more than this is a hang


@dataclass(frozen=True, slots=True)
class Trial:
    """A session to try, what its devices are called, the outputs it gives, and the cores that it may use."""

    session: SessionSpec
    devices: list[str]
    outputs: list[str]
    cores: list[int]


def measure(trials: list[Trial], graph_sha256: str, kept: Path, *, only_kept: bool = False) -> dict[str, float | str]:
    """Pictures per second by provider, or the sentence of why it does not run; taken from the file `kept` if it is there.

    What is kept holds for this graph, these sessions and devices, this processor and these versions; where one does not run,
    nothing is. With `only_kept` nothing is measured, and the answer is empty if nothing is kept.
    """
    sessions = [{**asdict(trial), "session": {**asdict(trial.session), "graph": graph_sha256}} for trial in trials]
    facts = {"processor": processor(), "versions": versions(), "trials": sessions}
    providers = [trial.session.provider for trial in trials]
    for entry in _read(kept):
        rates = entry["images_per_s"]
        if all(entry.get(name) == value for name, value in facts.items()) and set(rates) == set(providers):
            return {name: rates[name] for name in providers}
    if only_kept:
        return {}
    say(f"device: auto measures {', '.join(providers)} once for this network")
    measured = {trial.session.provider: _one(trial) for trial in trials}
    if all(isinstance(value, float) for value in measured.values()):  # what fails today may be mended tomorrow
        try:
            others = _read(kept)[1 - _KEPT_ENTRIES :]  # again: another launch may have written meanwhile
            write_json(kept, {"measured": [*others, {**facts, "images_per_s": measured}]})
        except OSError as error:
            warn(f"infer_launch: {kept} is not written ({error.strerror}): the next launch measures again")
    return measured


class _Entry(TypedDict):
    """One measurement that is kept; the facts under which it holds stand beside it."""

    images_per_s: dict[str, float]


class _Kept(TypedDict):
    measured: list[_Entry]


def _read(kept: Path) -> list[dict[str, Any]]:
    """What was measured before; nothing where there is no file of ours, or it is newer or damaged: it is only a note.

    Entries whose rates are none are left out.
    """
    try:
        found = read_json(kept) if kept.is_file() and kept.stat().st_size <= _KEPT_BYTES else {}
    except (BulkinferError, OSError):  # whoever cannot read it measures, and hears of it when it is written
        found = {}
    entries = [] if misfit(found, _Kept) else found["measured"]
    return [entry for entry in entries if all(0 < rate < math.inf for rate in entry["images_per_s"].values())]


def _one(trial: Trial) -> float | str:
    """Measured by a child process, which ends with this one."""
    device = f"--device {trial.session.provider}"
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "inference.probe", str(os.getpid())],
            input=json.dumps(asdict(trial)), capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{device} took more than {_LIMIT_S:.0f} s to open and run once"
    lines = [line for line in ended.stdout.splitlines() if line.startswith(_ANSWER)]  # libraries may print beside it
    if ended.returncode or not lines:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return f"{device} ends its process: {last[:300]}"
    told: float | str = json.loads(lines[-1].removeprefix(_ANSWER))
    return told


def main() -> None:
    """Print pictures per second, or a sentence, as JSON behind a mark; ends the process, as a worker does."""
    die_with_parent(int(sys.argv[1]))
    given = json.load(sys.stdin)
    trial = Trial(**{**given, "session": SessionSpec(**given["session"])})
    os.sched_setaffinity(0, trial.cores)
    told: float | str
    try:
        session = Session(trial.session, trial.outputs)
        told = warm_up(session, trial.session.streams, _MEASURE_S)
    except BulkinferError as error:
        told = str(error)
    except Exception as error:  # whatever it is, the other candidates go on
        told = f"--device {trial.session.provider}: {type(error).__name__}: {first_line(error)}"
    print(f"\n{_ANSWER}{json.dumps(told)}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
