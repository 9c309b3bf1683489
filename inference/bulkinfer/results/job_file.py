"""_job.json, the authority over an output directory: its structure, read, checked and published."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.errors import RunError, advising
from bulkinfer.files.atomic import canonical_json, read_json, write_json
from bulkinfer.files.json_validation import mismatch

JOB_FILE = "_job.json"
_BEGIN_ANEW = "run the job with --overwrite, or into another --output"


class Resolved(TypedDict):
    """What `auto` became; more may stand beside it."""

    provider: str


class PartitionEntry(TypedDict):
    """One partition in _job.json: records to do, and the hash of their keys that the parts must add up to."""

    num_records: int
    keys_sha256: str


class PartEntry(TypedDict):
    """One published part in _job.json: ok rows, error rows by stage, hash of the file."""

    ok: int
    stages: dict[str, int]
    sha256: str


class Description(TypedDict):
    """What _job.json must hold to be of use to a resume and to verify. Partitions are by number, parts by file name."""

    fingerprint: str
    identity: dict[str, Any]
    resolved: Resolved
    versions: dict[str, str]
    num_records: int
    partitions: dict[str, PartitionEntry]
    complete: bool
    parts: dict[str, PartEntry]


def json_sha256(value: Any) -> str:
    """sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def read_job(output: Path) -> dict[str, Any] | None:
    """_job.json of an output directory, checked to be a whole Description; None if there is none.

    Raises RunError if it is damaged, UsageError if it is from a newer format.
    """
    path = output / JOB_FILE
    if not path.exists():
        return None
    with advising(_BEGIN_ANEW):
        found = read_json(path)
    told = mismatch(found, Description)
    if not told and not all(index.isascii() and index.isdigit() for index in found["partitions"]):
        told = "its partitions have no numbers"
    if not told and json_sha256(found["identity"]) != found["fingerprint"]:
        told = "its identity does not fit its fingerprint"
    if not told and sum(part["num_records"] for part in found["partitions"].values()) != found["num_records"]:
        told = "its partitions do not add up to its records"
    if told:
        raise RunError(f"{path} is damaged ({told}): {_BEGIN_ANEW}")
    return found


def write_job(output: Path, description: dict[str, Any]) -> None:
    """Publish _job.json."""
    write_json(output / JOB_FILE, {name: value for name, value in description.items() if name != "format"})
