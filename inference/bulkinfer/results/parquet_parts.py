"""The results folder: Parquet parts, published complete, read and checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.errors import BulkinferError, ConflictError, ForeignError, RunError, UsageError, first_line
from bulkinfer.files.atomic import FORMAT
from bulkinfer.files.guarded import read_bytes
from bulkinfer.files.json_validation import mismatch
from bulkinfer.host.interruptible import interruptible
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.manifest_rows import KEY_COLUMNS, hash_keys, key_columns
from bulkinfer.results.output_store import output_store
from bulkinfer.results.part_names import DAMAGED_SUFFIX, overlaps, part_name, part_step
from bulkinfer.results.rows import StepRows, Task
from bulkinfer.types import Record, Step

METADATA_KEY = b"bulkinfer"
MOST_PART_BYTES = 1 << 31  # of a part, which is read at once


class PartFacts(TypedDict):
    """The required content of a part's file metadata; write_part adds more."""

    format: int
    fingerprint: str
    partition: int
    start: int
    end: int
    keys_sha256: str
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A published file: its records, the number of ok rows, error rows by stage, and the file's sha256.

    `replaces` is the sha256 of the file that a retry replaced by this one; empty for a first file, or if it was not read. `tag`
    is that of an object, see Entry; empty if it is not known.
    """

    step: Step
    num_ok: int
    stages: dict[str, int]
    sha256: str
    replaces: str = ""
    tag: str = ""

    @property
    def name(self) -> str:
        return part_name(self.step)

    @property
    def num_errors(self) -> int:
        return sum(self.stages.values())

    def as_json(self) -> dict[str, Any]:
        found = {"ok": self.num_ok, "errors": self.num_errors, "stages": self.stages, "sha256": self.sha256}
        return found | ({"tag": self.tag} if self.tag else {})


def schema(task: Task) -> pa.Schema:
    """Columns of a part: one schema per job, which does not depend on the content of the rows."""
    fields = [
        ("key", pa.string()),
        ("key_bytes", pa.binary()),
        ("partition", pa.int32()),
        ("status", pa.string()),
        ("stage", pa.string()),
        ("error", pa.string()),
        ("format", pa.string()),
        ("frames", pa.int32()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("size_bytes", pa.int64()),
        ("flags", pa.list_(pa.string())),
        ("label", pa.int32()),
        ("label_ids", pa.list_(pa.int32())),
    ]
    if "topk" in task.save:
        fields += [("class_ids", pa.list_(pa.int32())), ("scores", pa.list_(pa.float32()))]
        if task.labels:
            fields.append(("class_names", pa.list_(pa.string())))
    columns = [
        pa.field(name, pa.list_(pa.from_numpy_dtype(task.dtype), math.prod(shape)), metadata={"shape": json.dumps(shape)})
        for name, shape in task.columns.items()
    ]
    return pa.schema([*fields, *columns])


def to_table(rows: StepRows, count: int) -> pa.Table:
    """The first `count` rows as an Arrow table, in input order."""
    task = rows.task
    records: list[Record] = [record for record in rows.records[:count] if record is not None]
    assert len(records) == count, "a row without its record"
    facts = rows.facts[:count]
    errors = [rows.errors.get(i) for i in range(count)]
    failed = np.array([error is not None for error in errors], bool)
    keys, key_bytes = key_columns(pa.array([record.key for record in records], pa.binary()))
    columns: dict[str, Any] = {
        "key": keys,
        "key_bytes": key_bytes,
        "partition": np.full(count, rows.step.partition, np.int32),
        "status": ["ok" if error is None else "error" for error in errors],
        "stage": [error and error[0] for error in errors],
        "error": [error and error[1] for error in errors],
        "format": [fact and fact.format for fact in facts],
        "frames": [fact and fact.frames for fact in facts],
        "size_bytes": [fact and fact.size_bytes for fact in facts],
        "width": [fact and fact.width for fact in facts],
        "height": [fact and fact.height for fact in facts],
        "flags": [
            [*(fact.flags if fact else ()), *(("non_finite",) if i in rows.non_finite else ())] for i, fact in enumerate(facts)
        ],
        "label": [record.label for record in records],
        "label_ids": [record.category_ids for record in records],
    }
    if rows.class_ids_SK is not None and rows.scores_SK is not None:
        columns["class_ids"] = _lists(rows.class_ids_SK[:count], failed)
        columns["scores"] = _lists(rows.scores_SK[:count], failed)
        if task.labels:
            names = np.array(task.labels, object)[rows.class_ids_SK[:count]]
            columns["class_names"] = [None if bad else list(row) for row, bad in zip(names, failed, strict=True)]
    for name, values_SD in rows.saved.items():
        flat = pa.array(values_SD[:count].reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, values_SD.shape[1], mask=pa.array(failed))
    return pa.table(columns, schema=schema(task))


def _lists(values_SK: np.ndarray[Any, Any], failed: np.ndarray[Any, Any]) -> list[Any]:
    return [None if bad else row for row, bad in zip(values_SK, failed, strict=True)]


def _no_check() -> None:
    """For parts that need no check before the rename, because no other process can write them."""


def write_part(
    output: Path, rows: StepRows, count: int, metadata: dict[str, Any], *, before_rename: Callable[[], None] = _no_check
) -> Part:
    """Publish the first `count` rows of a step: completely or not at all.

    `metadata` (fingerprint, model, recipe, provider, versions) goes into the file with the range, the columns and a hash of
    the keys. `before_rename` is called when the file is complete and on disk; an exception from it prevents the publishing.
    """
    table = to_table(rows, count)
    step = Step(rows.step.partition, rows.step.start, rows.step.start + count)
    facts = {"format": FORMAT, **metadata, "partition": step.partition, "start": step.start, "end": step.end,
             "keys_sha256": hash_keys([table]), "columns": _columns(table)}  # fmt: skip
    sha256 = publish_table(output / part_name(step), table, facts, before_rename=before_rename)
    stages = Counter(stage for position, (stage, _) in rows.errors.items() if position < count)
    return Part(step, count - stages.total(), dict(stages), sha256)


def publish_table(final: Path, table: pa.Table, facts: dict[str, Any], *, before_rename: Callable[[], None] = _no_check) -> str:
    """Write rows and metadata as a part, completely or not at all; returns the file's sha256. See write_part."""
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(facts, sort_keys=True)})

    def write(file: BinaryIO) -> None:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)

    try:
        return output_store(final.parent).publish(final.name, write, before_rename, replaces="replaces" in facts)
    except ConflictError:  # a worker that is gone may have published it
        step = Step(facts["partition"], facts["start"], facts["end"])
        there, rows = read_part(final.parent, step, facts["fingerprint"])
        if not rows.replace_schema_metadata().equals(table.replace_schema_metadata()):
            raise
        return there.sha256


def published_steps(output: Path) -> list[Step]:
    """The steps of published files, sorted. Raises RunError if two overlap, or a folder has the name of a part."""
    found = listed_steps(output)
    for step in found:
        if found[step]:
            raise RunError(f"{output / part_name(step)} is a folder with the name of a part: move it away, then run again")
    for one, other in overlaps(found):
        raise RunError(f"{output}: {part_name(one)} and {part_name(other)} overlap: move one away, then run again")
    return list(found)


def listed_steps(output: Path) -> dict[Step, bool]:
    """Entries of `output` with the name of a part, sorted: step -> is a folder."""
    entries = output_store(output).entries()
    return dict(sorted((step, entry.is_folder) for name, entry in entries.items() if (step := part_step(name))))


def _columns(table: pa.Table) -> dict[str, str]:
    return {field.name: str(field.type).replace("<item:", "<element:") for field in table.schema}  # Parquet's name for items


@contextmanager
def _damage_as_run_error(path: Path) -> Iterator[None]:
    """Turn every error that reading a damaged file may raise into a RunError; OSErrors of the system (with errno) pass."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, RecursionError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise RunError(f"{path} is damaged or not a part of a job ({first_line(error)})") from None


def recorded_fingerprint(path: Path) -> str:
    """The fingerprint in a part's file metadata, not checked; empty if it is no part."""
    try:
        raw = (pq.ParquetFile(pa.BufferReader(read_bytes(path, MOST_PART_BYTES))).metadata.metadata or {}).get(METADATA_KEY)
        facts: Any = json.loads(raw or b"{}")
    except (BulkinferError, OSError, ValueError, RecursionError, pa.ArrowException):
        return ""
    return str(facts.get("fingerprint", "")) if isinstance(facts, dict) else ""


def _facts(path: Path, parquet: pq.FileMetaData) -> dict[str, Any]:
    """The checked metadata of a file: complete, of this format, and for as many records as the file has rows."""
    raw = (parquet.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise ValueError("its metadata names no job")
    facts: Any = json.loads(raw)
    found = facts.get("format") if isinstance(facts, dict) else None
    if type(found) is int and found > FORMAT:
        raise UsageError(f"{path} has format {found}; this bulkinfer reads format {FORMAT}: install a newer bulkinfer")
    if reason := mismatch(facts, PartFacts) or ("" if found == FORMAT else f"its format is {found}"):
        raise ValueError(reason)
    if parquet.num_rows != facts["end"] - facts["start"]:
        raise RunError(f"{path} is damaged ({parquet.num_rows} rows for records {facts['start']} to {facts['end']})")
    return dict(facts)


def inspect_part(output: Path, step: Step, fingerprint: str) -> Part:
    """Check a published file in full; see read_part."""
    return read_part(output, step, fingerprint)[0]


def read_part(
    output: Path, step: Step, fingerprint: str, columns: Sequence[str] | None = None, *, use_threads: bool = True
) -> tuple[Part, pa.Table]:
    """Read a published file once, with page checksums, and check that it belongs to this job and matches its metadata.

    Keys and stages are read, and of the other columns those in `columns` that the file has; all of them by default.
    `use_threads`: pyarrow decodes columns in threads, which need memory of their own.
    Raises RunError that names the file and the fault, ForeignError (a RunError) if it is another job's, UsageError if a newer
    bulkinfer wrote it.
    """
    path = output / part_name(step)
    data = output_store(output).read(path.name, MOST_PART_BYTES)
    with _damage_as_run_error(path):
        parquet = BoundedParquet(pa.BufferReader(data), len(data), use_threads=use_threads)
        facts = _facts(path, parquet.metadata)
        if facts["fingerprint"] != fingerprint:
            found = facts["fingerprint"][:8]
            raise ForeignError(f"{path} belongs to another job (fingerprint {found}, this one {fingerprint[:8]})")
        if (facts["partition"], facts["start"], facts["end"]) != (step.partition, step.start, step.end):
            raise RunError(f"{path} was renamed: it holds records {facts['start']} to {facts['end']} of {facts['partition']}")
        there = parquet.schema.names
        wanted = [name for name in there if columns is None or name in {*KEY_COLUMNS, "stage", *columns}]
        table = interruptible(lambda: parquet.read(wanted))
        kinds = {name: kind for name, kind in facts["columns"].items() if name in wanted}
        if set(there) != set(facts["columns"]) or _columns(table) != kinds:  # page checksums do not cover names and types
            raise RunError(f"{path} is damaged (its columns are not those it was written with)")
        if hash_keys([table]) != facts["keys_sha256"]:
            raise RunError(f"{path} is damaged (its keys are not those it was written with)")
        stages = Counter(stage for stage in table["stage"].to_pylist() if stage is not None)
        part = Part(
            step,
            table.num_rows - stages.total(),
            dict(stages),
            hashlib.sha256(data).hexdigest(),
            str(facts.get("replaces", "")),
        )
        return part, table


def count_stages(output: Path, step: Step) -> dict[str, int]:
    """Error rows of a published file by stage. Only that column is read and checked: raises RunError if it is damaged."""
    path = output / part_name(step)
    with _damage_as_run_error(path), output_store(output).opened(path.name) as file, pa.PythonFile(file, "r") as source:
        stages = BoundedParquet(source, source.size()).read(["stage"])["stage"]
        return dict(Counter(stages.drop_null().to_pylist()))


def set_aside(output: Path, step: Step) -> Path:
    """Move a damaged part to the own folder of `output`, so that its records run again and no reader uses it.

    Returns the new path.
    """
    return output_store(output).set_aside(part_name(step), f"_{part_name(step)}{DAMAGED_SUFFIX}")
