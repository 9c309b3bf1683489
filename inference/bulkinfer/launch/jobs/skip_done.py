"""--skip_done: a data set without the records that have an ok row in the outputs of earlier jobs of the same kind."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.addresses import place_path
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.user_path import real_path
from bulkinfer.launch.jobs.job import Job, resolved_of
from bulkinfer.records.dataset import Dataset, Partition, Skipped
from bulkinfer.records.manifest_rows import PickedLines, content_hash
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.results.job_kind import differing_fields, effective_identity, there_and_now
from bulkinfer.results.job_place import place_and_output
from bulkinfer.results.ok_rows import COLUMNS, done_rows, identities, large_keys
from bulkinfer.results.parquet_parts import published_steps
from bulkinfer.results.part_names import part_name
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")


def with_earlier_folders(config: LaunchConfig) -> LaunchConfig:
    """`config` whose --skip_done names results folders by their absolute paths, each once.

    What a user types may mean another job later: the newest one, or the only one with such a name. Raises UsageError if a word
    names no job.
    """
    outputs = (str(real_path(_output_of(word, config.log_path))) for word in config.skip_done)
    return replace(config, skip_done=tuple(dict.fromkeys(outputs)))


def without_done(config: LaunchConfig, identity: Mapping[str, Any], dataset: Dataset) -> Dataset:
    """`dataset` without the pictures that have an ok row in an output of --skip_done.

    A picture is the same if its key is, and its size where both sides know it. `config` is as with_earlier_folders returns it,
    `identity` that of the job on `dataset`. Raises UsageError if one of those folders is no output, is this job's own, or its
    rows are of another kind; RunError if it is damaged.
    """
    folders = [place_path(output) for output in config.skip_done]
    earlier = [(output, check_alike(config, identity, output)) for output in folders]
    for output, found in earlier:
        _warn_of_gone_parts(output, found)
    done = _Done.of(pa.concat_tables([_rows_of(output, found) for output, found in earlier]))
    partitions, left_out = [], []
    for partition in dataset.partitions:
        lines = partition.manifest.lines
        blocks = list(lines.blocks(COLUMNS, 0, len(lines)))
        is_done = _is_done(pa.concat_tables(blocks), done) if blocks else np.zeros(0, bool)
        numbers = np.flatnonzero(is_done)
        left_out.append((partition.index, len(numbers), content_hash(PickedLines(lines, numbers))))
        partitions.append(Partition(partition.index, partition.manifest.only(np.flatnonzero(~is_done)), partition.root))
    sha256 = hashlib.sha256(canonical_json(left_out).encode()).hexdigest()
    skipped = Skipped(config.skip_done, sum(count for _, count, _ in left_out), sha256)
    return replace(dataset, partitions=tuple(partitions), skipped=skipped, is_listed=False)


def _output_of(word: str, log_path: str) -> Path:
    """The results folder of a job that --skip_done names."""
    try:
        return place_and_output(word, log_path)[1]
    except UsageError as error:
        raise UsageError(f"--skip_done: {error}") from None


def _rows_of(output: Path, found: JobFile) -> pa.Table:
    try:
        return done_rows([(output, found)])
    except RunError as error:
        raise RunError(f"{error}; type this command again after: bulkinfer retry {shell_word(output)}") from None


def _warn_of_gone_parts(output: Path, found: JobFile) -> None:
    """One warning for parts that an earlier output recorded and has no more: their records count as not done."""
    gone = set(found.parts) - {part_name(step) for step in published_steps(output)}
    if gone:
        names = f"{min(gone)} is gone" if len(gone) == 1 else f"{min(gone)} and {len(gone) - 1} more parts are gone"
        log.warning(
            f"warning: --skip_done {output}: {names}, so what was there runs again: bulkinfer verify {shell_word(output)}"
        )


def check_alike(config: LaunchConfig, identity: Mapping[str, Any], output: Path) -> JobFile:
    """_job.json of an earlier output. Raises UsageError naming each field in which its rows are of another kind.

    What `auto` becomes is not known yet: check_settled compares it.
    """
    found = JobFile.read(output)
    if found is None:
        raise UsageError(f"--skip_done {output}: it holds no {JOB_FILE}; give the results folder of a job")
    if config.output and real_path(config.output) == real_path(output):
        raise UsageError(f"--skip_done {output} is the --output itself: a resume needs no --skip_done; give another --output")
    _refuse_other_kind(output, found, effective_identity(identity, {}))
    return found


def check_settled(job: Job) -> None:
    """The part of check_alike that needs to know what `auto` became. Raises UsageError as that does."""
    for output in map(place_path, job.config.skip_done):
        found = JobFile.read(output)
        if found is None:
            raise UsageError(f"--skip_done {output}: its {JOB_FILE} is gone; give the results folder of a job")
        _refuse_other_kind(output, found, effective_identity(job.identity, resolved_of(job)))


def _refuse_other_kind(output: Path, found: JobFile, now: Mapping[str, Any]) -> None:
    if differing := differing_fields(effective_identity(found.identity, found.resolved), now):
        fields = "; ".join(there_and_now(differing).values())
        raise UsageError(f"--skip_done {output}: its rows are of another kind, by {fields}: run all pictures")


@dataclass(frozen=True)
class _Done:
    """The ok rows to look up: their identities (key and size), their keys, and the keys of rows without a size."""

    identities: pa.Array
    keys: pa.Array
    unsized: pa.Array

    @classmethod
    def of(cls, rows: pa.Table) -> _Done:
        unsized = rows["key"].filter(pc.is_null(rows["size"]))
        return cls(pc.unique(identities(rows)), pc.unique(rows["key"]), pc.unique(unsized))


def _is_done(lines: pa.Table, done: _Done) -> np.ndarray[Any, Any]:
    """For each line of a manifest: True if it has an ok row of the same key and size, or key if a size is unknown."""
    rows = pa.table({"key": large_keys(lines), "size": lines["size_bytes"]})
    found = pc.or_(
        pc.is_in(identities(rows), value_set=done.identities),
        pc.or_(
            pc.is_in(rows["key"], value_set=done.unsized),
            pc.and_(pc.is_null(rows["size"]), pc.is_in(rows["key"], value_set=done.keys)),
        ),
    )
    return np.asarray(found.to_numpy(), bool)
