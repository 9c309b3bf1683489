"""_job.json, the authority over a results folder: read, checked, brought up to date and published."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.errors import BulkinferError, DamagedError, RunError, advising
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.guarded import JOB_BYTES
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.own_folder import JOB_FILE as JOB_FILE
from bulkinfer.files.own_folder import make_own_folder, own_folder
from bulkinfer.results.control_files import control_exists, read_control, write_control
from bulkinfer.results.job_copies import copy_command
from bulkinfer.results.parquet_parts import Part, listed_steps
from bulkinfer.results.shard import Shard, ShardEntry, shard_fault, totals_of
from bulkinfer.types import Step

_WAYS_OUT = "run the job with --overwrite, or into another --output"


class Resolved(TypedDict):
    """What `auto` became. Newer files hold more: devices, precision, graph_sha256, weights_sha256, batches_per_step."""

    provider: str


class _PartitionEntry(TypedDict):
    num_records: int
    keys_sha256: str


class PartitionEntry(_PartitionEntry, total=False):
    """One partition: the number of its records, the hash of their keys in order, and of its manifest's content.

    Of a shard, records and keys are its own; the manifest is that of the whole partition.
    """

    manifest_sha256: str


class _PartEntry(TypedDict):
    ok: int
    stages: dict[str, int]
    sha256: str


class PartEntry(_PartEntry, total=False):
    """One published part: ok rows, error rows by stage, sha256 of the file; in a bucket the tag of the object."""

    tag: str


def job_path(output: Path) -> Path:
    """Where the _job.json of `output` lies, or would be written.

    Earlier versions wrote it into `output`. One that lies there was put there last: going on with it moves it.
    """
    if isinstance(output, AddressPath):
        return own_folder(output) / JOB_FILE
    old = output / JOB_FILE
    return old if old.exists() else own_folder(output) / JOB_FILE


@dataclass(frozen=True)
class RowCounts:
    """The rows of all published parts: how many are ok, and error rows by stage."""

    ok: int = 0
    errors_by_stage: dict[str, int] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        return sum(self.errors_by_stage.values())


class _Content(TypedDict):
    """The fields that every _job.json must hold. Partitions are by number, parts by file name."""

    fingerprint: str
    identity: dict[str, Any]
    resolved: Resolved
    versions: dict[str, str]
    num_records: int
    partitions: dict[str, PartitionEntry]
    complete: bool
    parts: dict[str, PartEntry]


@dataclass
class JobFile:
    """The content of _job.json. Fields that this version does not know are kept, in their places.

    A launch changes it through `note_part`, `forget_part`, `resolve`, `complete` and `reopen`, and publishes it with `write`.
    In a bucket that replaces the object with this `tag`, which was read or written last; empty: there was none.
    """

    content: dict[str, Any]
    tag: str = field(default="", compare=False)

    @classmethod
    def read(cls, output: Path, log_path: str = "") -> JobFile | None:
        """The checked _job.json of a results folder; None if there is none. It may still lie where earlier versions put it.

        Raises RunError if it is damaged, which names a sound one if there is one, also in the folder of job logs `log_path`;
        UsageError if a newer version wrote it.
        """
        path = job_path(output)
        is_gone = not isinstance(output, AddressPath) and not output.is_dir()
        if is_gone or not control_exists(path):  # what lies beside a folder that is gone is of no use
            return None
        try:
            with advising(_WAYS_OUT):
                content, tag, _ = read_control(path, most_bytes=JOB_BYTES)
                return cls(cls.of(content, path).content, tag)
        except RunError as error:
            if advice := copy_command(output, log_path=log_path):
                raise RunError(f"{str(error).removesuffix(f': {_WAYS_OUT}')}: {advice}") from None
            raise

    @classmethod
    def of(cls, content: dict[str, Any], path: Path) -> JobFile:
        """The job in the content of `path`. Raises DamagedError that names the file and what is wrong in it."""
        if fault := _fault(content):
            raise DamagedError(f"{path} is damaged ({fault})")
        return cls(content)

    def write(self, output: Path) -> None:
        """Publish it in the own folder of `output`. Raises RunError if one lies in `output`: see job_path."""
        folder = make_own_folder(output)
        if folder != output and job_path(output) == output / JOB_FILE:
            other = output / JOB_FILE
            raise RunError(
                f"{other} was put there during this launch, maybe by an earlier version: move it away, then run again"
            )
        self.tag = write_control(folder / JOB_FILE, self.content, instead_of=self.tag)

    # -- what it says ----------------------------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """sha256 of `identity`; every part bears it."""
        return str(self.content["fingerprint"])

    @property
    def identity(self) -> dict[str, Any]:
        """Every fact that decides what the rows hold."""
        identity: dict[str, Any] = self.content["identity"]
        return identity

    @property
    def model_name(self) -> str:
        return str(self.identity.get("model_name"))

    @property
    def config(self) -> dict[str, Any]:
        """The options that the job began with, not checked; empty in a file that holds none."""
        config = self.content.get("config")
        return config if isinstance(config, dict) else {}

    @property
    def resolved(self) -> dict[str, Any]:
        """What `auto` became, and the length of a step: at least the fields of Resolved."""
        resolved: dict[str, Any] = self.content["resolved"]
        return resolved

    @property
    def versions(self) -> dict[str, str]:
        """The packages that the job began with."""
        versions: dict[str, str] = self.content["versions"]
        return versions

    @property
    def source(self) -> str:
        """Where the pictures came from, in words."""
        return str(self.content.get("source"))

    @property
    def skipped(self) -> Any:
        """What --skip_done left out, not checked; None: nothing."""
        return self.content.get("skipped")

    @property
    def num_records(self) -> int:
        return int(self.content["num_records"])

    @property
    def partitions(self) -> dict[int, PartitionEntry]:
        """By partition number."""
        return {int(index): entry for index, entry in self.content["partitions"].items()}

    @property
    def shard(self) -> Shard | None:
        """The shard of a job that lies here; None: the whole job."""
        return Shard.of(self.content["shard"]) if "shard" in self.content else None

    def ranges(self) -> dict[int, list[Step]]:
        """The records that the parts are to hold, by partition: all of it, or the steps of the shard."""
        if (shard := self.shard) is not None:
            return shard.ranges(totals_of(self.content["shard"]))
        return {index: [Step(index, 0, entry["num_records"])] for index, entry in self.partitions.items()}

    @property
    def parts(self) -> dict[str, PartEntry]:
        """The published parts by file name."""
        parts: dict[str, PartEntry] = self.content["parts"]
        return parts

    @property
    def is_complete(self) -> bool:
        """Every record has a row."""
        return bool(self.content["complete"])

    def count_rows(self) -> RowCounts:
        """The rows of all published parts."""
        stages: Counter[str] = sum((Counter(part["stages"]) for part in self.parts.values()), Counter())
        return RowCounts(sum(part["ok"] for part in self.parts.values()), dict(stages))

    # -- what a launch changes -------------------------------------------------------------------------------------------

    def note_part(self, part: Part) -> None:
        """Record a published part, in place of an older one of the same name."""
        self.content["parts"][part.name] = part.as_json()

    def forget_part(self, name: str) -> None:
        """Remove a part that is damaged or gone."""
        self.parts.pop(name, None)

    def resolve(self, *, batches_per_step: int) -> None:
        """Record how long steps are."""
        self.content["resolved"]["batches_per_step"] = batches_per_step

    def reopen(self) -> None:
        """Mark the job as not complete."""
        self.content["complete"] = False

    def complete(self, published: Iterable[Step]) -> None:
        """Mark the job as complete if the `published` parts hold every record."""
        counted = Counter[int]()
        for step in published:
            counted[step.partition] += len(step)
        self.content["complete"] = all(counted[index] == entry["num_records"] for index, entry in self.partitions.items())


def read_begun(output: Path, log_path: str = "") -> JobFile | None:
    """The job that a launch on `output` goes on with, as JobFile.read; None also if its parts are gone: see are_parts_gone."""
    return None if are_parts_gone(output) else JobFile.read(output, log_path)


def are_parts_gone(output: Path) -> bool:
    """True if the own folder of `output` records parts and `output` has none: they were moved away or removed."""
    path = own_folder(output) / JOB_FILE
    if job_path(output) != path or path.parent == output or not control_exists(path) or listed_steps(output):
        return False
    try:
        return bool(read_control(path, most_bytes=JOB_BYTES).content.get("parts"))
    except BulkinferError:  # JobFile.read says so, unless --overwrite removes it
        return False


def json_sha256(value: Any) -> str:
    """sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _fault(found: dict[str, Any]) -> str:
    """Why this cannot be the content of a _job.json; empty if it can."""
    if fault := mismatch(found, _Content):
        return fault
    if not all(index.isascii() and index.isdigit() for index in found["partitions"]):
        return "its partitions have no numbers"
    if json_sha256(found["identity"]) != found["fingerprint"]:
        return "its identity does not fit its fingerprint"
    if sum(entry["num_records"] for entry in found["partitions"].values()) != found["num_records"]:
        return "its partitions do not add up to its records"
    if "shard" not in found:
        return ""
    records = {int(index): entry["num_records"] for index, entry in found["partitions"].items()}
    return mismatch(found["shard"], ShardEntry, "shard") or shard_fault(found["shard"], records)
