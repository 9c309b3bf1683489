"""The folder of a run of a file of benchmarks: each entry is kept when it is finished, and --resume takes it from there."""

from __future__ import annotations

import fcntl
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.spec.entry import Entry
from bulkinfer.bench.spec.result_files import NAME
from bulkinfer.bench.spec.run_entry import DONE, description_of
from bulkinfer.errors import LockedError, UsageError, advising, os_error_sentence
from bulkinfer.files.atomic import safe_name
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.user_path import require_folder_place
from bulkinfer.results.log_folder import dated
from bulkinfer.types import printable_path, shell_word

log = logging.getLogger("bulkinfer")

_STATE, _ENTRIES, _LOCK = "benchmarks.json", "finished", ".lock"
_SAME = ("spec", "is_quick", "hardware", "system", "versions")  # of a run that goes on


class Kept:
    """The folder of one run, locked while it is open."""

    def __init__(self, folder: Path, conditions: Mapping[str, Any]) -> None:
        self.folder, self.conditions = folder, conditions

    def finished(self, entry: Entry) -> dict[str, Any] | None:
        """The result of an entry that is done; None if it is not, or if the file says something else of it now."""
        path = self.folder / _ENTRIES / f"{entry.name}.json"
        if not path.exists():
            return None
        with advising(f"remove it, and {entry.name} is run again"):
            result = read_json(path)
        is_same = all(result.get(name) == value for name, value in json.loads(json.dumps(description_of(entry))).items())
        return result if is_same and result.get("status") == DONE else None

    def keep(self, entry: Entry, result: Mapping[str, Any]) -> None:
        """Write the result of an entry that has come to its end."""
        (self.folder / _ENTRIES).mkdir(exist_ok=True)
        write_json(self.folder / _ENTRIES / f"{entry.name}.json", dict(result))

    def room_for(self, entry: Entry) -> None:
        """Move what an interrupted run of an entry has left out of the way."""
        place = self.folder / entry.name
        if place.exists():
            numbers = (place.with_name(f"{entry.name}.interrupted-{number}") for number in range(1, 1000))
            place.rename(next(each for each in numbers if not each.exists()))


@contextmanager
def opened(log_path: Path, spec: Path, conditions: Mapping[str, Any], *, is_resumed: bool) -> Iterator[Kept]:
    """The folder of a new run, or with `is_resumed` that of the newest run of this file that was not finished.

    Raises UsageError if there is none, or if it was begun under other conditions; LockedError if it is still running.
    """
    require_folder_place(log_path, "--log_path")
    name = f"benchmarks-{safe_name(spec.stem)}"
    conditions = json.loads(json.dumps({"spec": str(spec), **conditions}))
    if is_resumed:
        folder = _unfinished(log_path, name, spec)
        _require_same(folder, conditions)
        log.info(f"goes on in {printable_path(folder)}")
    else:
        folder = dated(log_path, name)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"--log_path: {os_error_sentence(error)}: give another folder") from None
        write_json(folder / _STATE, dict(conditions))
    with _locked(folder):
        yield Kept(folder, read_json(folder / _STATE))


def resume_command(config: BenchConfig) -> str:
    """What to type to go on with an interrupted run."""
    words = [shell_word(name) for name in config.benchmark]
    words += ["--quick"] if config.quick else []
    words += ["--baseline", shell_word(config.baseline)] if config.baseline else []
    words += [] if config.log_path == BenchConfig.log_path else ["--log_path", shell_word(config.log_path)]
    return " ".join(["bulkinfer bench --spec", shell_word(config.spec), *words, "--resume"])


def _unfinished(log_path: Path, name: str, spec: Path) -> Path:
    found = [path for path in sorted(log_path.glob(f"{name}-*"), reverse=True) if (path / _STATE).is_file()]
    for folder in found:
        if (folder / f"{NAME}.json").exists():
            continue
        with advising(f"remove {printable_path(folder)}, and an earlier run goes on, or leave --resume out"):
            is_of_spec = read_json(folder / _STATE).get("spec") == str(spec)
        if is_of_spec:
            return folder
    raise UsageError(
        f"--resume: {printable_path(log_path)} holds no unfinished run of {printable_path(spec)}: leave --resume out"
    )


def _require_same(folder: Path, conditions: Mapping[str, Any]) -> None:
    before = read_json(folder / _STATE)
    for name in _SAME:
        if before.get(name) != conditions[name]:
            what = "--quick" if name == "is_quick" else name
            raise UsageError(
                f"--resume: {printable_path(folder)} was begun with other {what}: leave --resume out to begin again"
            )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder. The system gives the lock back however this process ends."""
    with (folder / _LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"another bulkinfer bench uses {printable_path(folder)}: wait until it has ended") from None
        yield
