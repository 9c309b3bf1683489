"""The graph cache: optimised graphs beside the graphs they were made of, for sessions that open quickly and share weights.

When onnxruntime's cpu provider opens a graph, it rewrites it for the processor, and each process holds its own copy of the
weights. The cache holds the result. Processes map its weights file, so that they share one copy of it.

An entry is the folder graph_cache/KEY: graph.onnx, weights.bin, and record.json, which is sealed and holds the sha256 of both.
KEY is a hash of all that the result depends on. An entry is published by a rename, and only if it gave the same bits as the
graph it was made of (optimise_graph.py). The launcher reads all of an entry once, before it hands it to workers; a worker
compares what the system says of the files. Where no entry can be made, the folder holds a record of the reason only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.errors import BulkinferError, DamagedError, UsageError
from bulkinfer.files.atomic import TEMPORARY_PREFIX, canonical_json, file_sha256, remove_abandoned, temporary_path
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.host.versions import processor, processor_features, versions

VARIABLE = "BULKINFER_GRAPH_CACHE"  # off: entries are neither made nor used; on, or not set: they are
FOLDER = "graph_cache"
GRAPH, WEIGHTS, RECORD = "graph.onnx", "weights.bin", "record.json"
_KEY = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MACHINE = ("processor", "instruction_sets")  # facts of the machine; an entry of another one may be in use there


class _File(TypedDict):
    size_bytes: int
    sha256: str


class _Sound(TypedDict):
    facts: dict[str, str]
    files: dict[str, _File]


class _Record(_Sound, total=False):
    """The record of an entry. With `refusal` there are no files: an entry cannot be made, for that reason."""

    refusal: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A sound entry: the path of its graph, and what stamp_of() said of it when its bytes were compared with the record."""

    graph: str
    stamp: str


def is_switched_off() -> bool:
    """True if BULKINFER_GRAPH_CACHE is off. Raises UsageError for a word that is neither on nor off."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "on", "off"):
        raise UsageError(f"the environment variable {VARIABLE} is {wanted!r}: set it to on or off, or unset it")
    return wanted == "off"


def facts_of(graph: Path, graph_sha256: str, weights_sha256: str) -> dict[str, str]:
    """All that decides an optimised graph, by name: the graph and its weights, this processor, and the runtime's packages."""
    return {
        "graph": graph.name,
        "graph_sha256": graph_sha256,
        "weights_sha256": weights_sha256,
        "processor": processor(),
        "instruction_sets": " ".join(sorted(processor_features())),
        **{name: version for name, version in versions().items() if name.startswith("onnxruntime")},
    }


def entry_folder(graph: Path, facts: dict[str, str]) -> Path:
    """The folder for the entry of a graph."""
    return graph.parent / FOLDER / hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:16]


def stamp_of(graph: str) -> str:
    """What the system says of the files of an entry; another write, or another file, changes it. '' if one is missing."""
    folder = Path(graph).parent
    try:
        found = [os.stat(folder / name) for name in (GRAPH, WEIGHTS)]
    except OSError:
        return ""
    return " ".join(f"{file.st_ino}-{file.st_size}-{file.st_mtime_ns}-{file.st_ctime_ns}" for file in found)


def write_record(folder: Path, facts: dict[str, str]) -> Entry:
    """Record the files in `folder` as an entry for `facts`. Raises OSError if one is missing."""
    before = stamp_of(str(folder / GRAPH))
    files = {
        name: _File(size_bytes=(folder / name).stat().st_size, sha256=file_sha256(folder / name)) for name in (GRAPH, WEIGHTS)
    }
    write_json(folder / RECORD, {"facts": facts, "files": files})
    return Entry(str(folder / GRAPH), before)


def write_refusal(folder: Path, facts: dict[str, str], reason: str) -> None:
    """Publish in `folder`, in place of what lies there, that no entry can be made for `facts`. Raises OSError.

    OSError is raised also if another process publishes an entry there at the same time.
    """
    folder.parent.mkdir(exist_ok=True)
    remove_abandoned(folder.parent, f"{TEMPORARY_PREFIX}*")  # of the process that crashed: as large as the weights
    work = temporary_path(folder)
    try:
        work.mkdir()
        write_json(work / RECORD, {"facts": facts, "files": {}, "refusal": reason})
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)  # it is there only after an error


def find_refusal(folder: Path, facts: dict[str, str]) -> str:
    """Why an earlier launch could not make the entry in `folder`; empty if nothing sound says so."""
    try:
        record = _read_record(folder) if folder.is_dir() else None
    except DamagedError:
        return ""
    return record.get("refusal", "") if record is not None and record["facts"] == facts else ""


def find_entry(folder: Path, facts: dict[str, str]) -> Entry | None:
    """The entry in `folder`, all its bytes read; None if there is no such folder.

    Raises DamagedError if it is not a sound entry for `facts`.
    """
    if not folder.is_dir():
        return None
    graph = folder / GRAPH
    stamp, record = stamp_of(str(graph)), _read_record(folder)
    if record["facts"] != facts or set(record["files"]) != {GRAPH, WEIGHTS}:
        raise DamagedError(f"{folder} is damaged (its record is of something else)")
    for name, file in record["files"].items():
        try:
            is_same = file_sha256(folder / name, most_bytes=file["size_bytes"]) == file["sha256"]
        except (DamagedError, OSError) as error:
            raise DamagedError(f"{folder} is damaged ({error})") from None
        if not is_same:
            raise DamagedError(f"{folder} is damaged ({name} is not the file recorded)")
    if not stamp or stamp_of(str(graph)) != stamp:
        raise DamagedError(f"{folder} was changed while it was read")
    return Entry(str(graph), stamp)


def remove_superseded(entries: Path, facts: dict[str, str]) -> None:
    """Remove the entries in `entries` that no launch on this machine will use again, once there is one for `facts`.

    Those of other graphs with the same weights and packages stay: they have another batch size. So do those of other
    machines, which may share the folder. Raises OSError.
    """
    for folder in sorted(entries.iterdir()):
        if _KEY.fullmatch(folder.name) and _is_superseded(folder, facts):
            shutil.rmtree(folder)


def _is_superseded(folder: Path, facts: dict[str, str]) -> bool:
    try:
        there = _read_record(folder)["facts"]
    except DamagedError:
        return True
    if any(there.get(name) != facts[name] for name in _MACHINE):
        return False
    of_graph = ("graph", "graph_sha256")
    others, ours = ({name: value for name, value in each.items() if name not in of_graph} for each in (there, facts))
    return others != ours or (there.get("graph") == facts["graph"] and there != facts)


def _read_record(folder: Path) -> _Record:
    """The record of an entry. Raises DamagedError if it is missing, damaged, or has another structure."""
    try:
        found: Any = read_json(folder / RECORD)
    except (BulkinferError, OSError) as error:
        raise DamagedError(f"{folder} is damaged ({RECORD} cannot be read: {error})") from None
    if reason := mismatch(found, _Record):
        raise DamagedError(f"{folder} is damaged ({RECORD}: {reason})")
    record: _Record = found
    return record
