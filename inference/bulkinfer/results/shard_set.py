"""The shards of one job in one folder: what they have agreed on, and which of them are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from bulkinfer.errors import DamagedError, UsageError, advising
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.guarded import JOB_BYTES
from bulkinfer.files.json_validation import mismatch
from bulkinfer.results.control_files import control_exists, read_control
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.shard import MERGED, SHARDS_FILE, Shard
from bulkinfer.types import printable_path, shell_word

DECIDED = ("provider", "precision", "backend", "graph_sha256", "weights_sha256")  # what `auto` became; all shards share it
FIELD = "shards"  # of SHARDS_FILE; the other fields are those of the _job.json of all shards together


class _Entry(TypedDict):
    count: int
    step_records: int


@dataclass(frozen=True)
class ShardSet:
    """What SHARDS_FILE in `folder` says: the job of all shards without its parts, their number, and records of a step."""

    folder: Path
    job: JobFile
    count: int
    step_records: int

    def __iter__(self) -> Iterator[Shard]:
        """Every shard, also one that no launcher has begun."""
        return (Shard(index, self.count, self.step_records) for index in range(1, self.count + 1))

    def output(self, shard: Shard) -> Path:
        """The results folder of a shard. It need not exist."""
        return self.folder / shard.folder

    def fault_of(self, shard: Shard, job: JobFile) -> str:
        """Why `job`, which lies in the folder of `shard`, is not that shard of this job; empty if it is.

        Where it is empty for all shards, no record is in two of them, or in none.
        """
        whole = self.job
        if job.fingerprint != whole.fingerprint:
            ours, theirs = whole.fingerprint[:8], job.fingerprint[:8]
            return f"holds another job (fingerprint {theirs}, the shards here have {ours}): move it away"
        if job.shard != shard:
            what = "the whole job" if job.shard is None else f"shard {job.shard} in steps of {job.shard.step_records} records"
            return f"holds {what}, not shard {shard} in steps of {shard.step_records}: move it away"
        if differing := [name for name in DECIDED if job.resolved.get(name) != whole.resolved.get(name)]:
            theirs, ours = (str(each.resolved.get(differing[0]))[:12] for each in (job, whole))
            return f"ran with {differing[0]} {theirs}, the other shards with {ours}: run it again with --overwrite"
        expected = shard.num_records({index: entry["num_records"] for index, entry in whole.partitions.items()})
        for index in sorted(whole.partitions.keys() | job.partitions.keys()):
            found, wanted = job.partitions.get(index), whole.partitions.get(index)
            if found is None or wanted is None or found["num_records"] != expected[index]:
                return f"has another number of records of partition {index} than this shard: move it away"
            if found.get("manifest_sha256") != wanted.get("manifest_sha256"):
                return f"lists other pictures in partition {index} than the other shards: move it away"
        return ""


def read_shard_set(folder: Path) -> ShardSet | None:
    """The shards in `folder`; None if it holds none.

    Raises RunError if the file about them is damaged, UsageError if a newer version wrote it.
    """
    path = folder / SHARDS_FILE
    if not control_exists(path):
        return None
    with advising("remove it and run infer_launch of one shard again, which writes it"):
        content = read_control(path, most_bytes=JOB_BYTES).content
        job = JobFile.of(content, path)
        if fault := mismatch(content.get(FIELD), _Entry, FIELD):
            raise DamagedError(f"{printable_path(path)} is damaged ({fault})")
    return ShardSet(folder, job, content[FIELD]["count"], content[FIELD]["step_records"])


def refuse_shard_set(folder: Path) -> None:
    """Raises UsageError if `folder` holds shards, for commands that take one results folder; it says what to type."""
    if not control_exists(folder / SHARDS_FILE):
        return
    shown = printable_path(folder)
    if isinstance(folder, AddressPath):
        shards = read_shard_set(folder)
        first = folder if shards is None else shards.output(next(iter(shards)))
        raise UsageError(f"{shown} holds the shards of a job: give one of them, such as {shell_word(first)}")
    if (folder / MERGED).is_dir():
        raise UsageError(f"{shown} holds the shards of a job: give {shell_word(folder / MERGED)}, which has the rows of all")
    there = sorted(path for path in folder.glob("shard-*-of-*") if path.is_dir())
    advice = f"bulkinfer merge {shell_word(folder)} joins them"
    if there:
        advice += f"; until then give one of them, such as {shell_word(there[0])}"
    raise UsageError(f"{shown} holds the shards of a job: {advice}")
