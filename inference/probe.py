"""How fast each candidate of `--device auto` runs the network, each in a process of its own; measured once, and kept.

    python -m inference.probe SPEC.json

A candidate that crashes, hangs or takes memory for ever does so alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from inference.errors import BulkinferError, first_line
from inference.paths import read_json, write_json
from inference.providers import SessionSpec
from inference.runlog import processor, say, versions, warn
from inference.session import Session, warm_up
from inference.structure import misfit

KEPT_FILE = "fastest.json"
_MEASURE_S = 1.5
_LIMIT_S = 300.0  # opening a large network on a slow disk takes its time; more than this is a hang


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session to try, with the cores that a worker would have, and the outputs that it would ask for."""

    session: SessionSpec
    outputs: list[str]
    cores: list[int]


def measure(found: list[Candidate], graph_sha256: str, kept: Path) -> dict[str, float | str]:
    """Pictures per second by provider, or the sentence of why it does not run; taken from the file `kept` if it is there.

    What is kept holds for this graph, these sessions, this processor and these versions; where one does not run, nothing is.
    """
    sessions = [{**asdict(candidate), "session": {**asdict(candidate.session), "graph": graph_sha256}} for candidate in found]
    facts = {"processor": processor(), "versions": versions(), "candidates": sessions}
    before = _read(kept)
    for entry in before:
        if all(entry.get(name) == value for name, value in facts.items()):
            return dict(entry["images_per_s"])
    say(f"device: auto measures {', '.join(candidate.session.provider for candidate in found)} once for this network")
    measured = {candidate.session.provider: _one(candidate) for candidate in found}
    if all(isinstance(value, float) for value in measured.values()):  # what fails today may be mended tomorrow
        try:
            write_json(kept, {"measured": [*before, {**facts, "images_per_s": measured}]})
        except OSError as error:
            warn(f"infer_launch: {kept} is not written ({error.strerror}): the next launch measures again")
    return measured


class _Entry(TypedDict):
    """One measurement that is kept; the facts under which it holds stand beside it."""

    images_per_s: dict[str, Any]


class _Kept(TypedDict):
    measured: list[_Entry]


def _read(kept: Path) -> list[dict[str, Any]]:
    """What was measured before; nothing where the file is missing, newer or damaged: it is only a note, and written anew."""
    try:
        found = read_json(kept) if kept.exists() else {}
    except BulkinferError:
        found = {}
    return [] if misfit(found, _Kept) else list(found["measured"])


def _one(candidate: Candidate) -> float | str:
    """Measured by a child process."""
    with tempfile.TemporaryDirectory(prefix="bulkinfer-") as folder:
        spec = Path(folder) / "spec.json"
        write_json(spec, asdict(candidate))
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "inference.probe", str(spec)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"--device {candidate.session.provider} took more than {_LIMIT_S:.0f} s to open and run once"
    told: Any = None
    for line in ended.stdout.splitlines()[-1:]:
        told = json.loads(line) if line.startswith(("{", '"')) or line[:1].isdigit() else None
    if ended.returncode or not isinstance(told, float | str):
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return f"--device {candidate.session.provider} ends its process: {last[:300]}"
    return told


def main(argv: list[str]) -> None:
    """Print pictures per second, or a sentence, as JSON on the last line; ends the process, as a worker does."""
    spec = {name: value for name, value in read_json(Path(argv[0])).items() if name != "format"}
    candidate = Candidate(**{**spec, "session": SessionSpec(**spec["session"])})
    os.sched_setaffinity(0, candidate.cores)
    told: float | str
    try:
        session = Session(candidate.session, candidate.outputs)
        told = warm_up(session, candidate.session.streams, _MEASURE_S)
    except BulkinferError as error:
        told = str(error)
    except Exception as error:  # whatever it is, the other candidates go on
        told = f"--device {candidate.session.provider}: {type(error).__name__}: {first_line(error)}"
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
