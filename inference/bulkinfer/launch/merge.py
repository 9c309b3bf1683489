"""bulkinfer merge: the parts of all shards of a job in one results folder, which is there as a whole or not at all."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.atomic import (
    NO_LINKS,
    file_sha256,
    fsync_directory,
    naming,
    remove_abandoned,
    write_owner_file,
)
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.output_lock import launcher_in, results_lock
from bulkinfer.files.own_folder import own_folder, require_outside_results
from bulkinfer.files.user_path import real_path, require_folder_place
from bulkinfer.launch.claim import forget_gone_results, remove_temporaries
from bulkinfer.launch.jobs.begun_config import begun_config, continuing
from bulkinfer.launch.merge_log import keep_log
from bulkinfer.launch.options import MergeConfig
from bulkinfer.launch.reporting.summary import OK, WITH_ERRORS
from bulkinfer.results.job_file import JobFile, RowCounts
from bulkinfer.results.parquet_parts import MOST_PART_BYTES
from bulkinfer.results.part_names import STAGING, by_partition, missing_ranges, part_step
from bulkinfer.results.shard import MERGED, SHARDS_FILE, Shard
from bulkinfer.results.shard_set import FIELD, ShardSet, read_shard_set
from bulkinfer.results.verify import name_some
from bulkinfer.types import Step, printable_path, shell_word

log = logging.getLogger("bulkinfer")

_BEGINNING, PARTS = "_tmp-merge-", "parts"  # of a temporary folder, and the folder in it in which the parts are gathered
_NO_LINKS = (*NO_LINKS, errno.EXDEV, errno.EMLINK)  # then a part is copied


@dataclass(frozen=True)
class Merged:
    """The results folder with the rows of all shards."""

    output: Path
    counts: RowCounts

    @property
    def exit_code(self) -> int:
        """That of a launch that did the whole job."""
        return WITH_ERRORS if self.counts.errors else OK


def merge_shards(config: MergeConfig) -> Merged:
    """Make one output of the shards in `config.shards`; they stay as they are. What is there and whole is left as it is.

    Raises UsageError if that folder holds no shards, or the output holds something else; RunError if a shard is missing, not
    complete, of another job or damaged; LockedError if another merge is at work.
    """
    for option, place in (("", config.shards), ("--output ", config.output)):
        if address := address_of(place):
            raise UsageError(
                f"{option}{address}: shards are merged in folders, by links: leave those in a bucket as they are; programs "
                "read them as one table by their common prefix, and bulkinfer verify takes it too"
            )
    began_s = time.time()
    shards = _require_shards(Path(config.shards))
    output = Path(config.output) if config.output else shards.folder / MERGED
    require_folder_place(output, "--output")
    require_outside_results(output, "--output", is_results=True)
    output = real_path(output) if output.is_symlink() else output
    with results_lock(output) as lease:
        if (found := _already_merged(shards, output)) is not None:
            log.info(f"{printable_path(output)} holds the rows of all shards already")
            return _logged(Merged(output, found.count_rows()), found, began_s)
        jobs = _complete_jobs(shards)
        whole = _whole_job(shards, jobs, output)
        if not output.exists():
            forget_gone_results(output)
        remove_temporaries(output)
        with _gathered(output) as folder:
            for shard, job in zip(shards, jobs, strict=True):
                _gather(shards.output(shard), job, folder)
            lease.check()
            whole.write(output)
            fsync_directory(folder)
            os.rename(folder, output)  # an empty folder of this name is replaced
        fsync_directory(output.parent)
        return _logged(Merged(output, whole.count_rows()), whole, began_s)


def _logged(merged: Merged, job: JobFile, began_s: float) -> Merged:
    keep_log(job, merged.output, merged.exit_code, began_s)
    return merged


def _require_shards(folder: Path) -> ShardSet:
    if (found := read_shard_set(folder)) is not None:
        return found
    if (above := folder.absolute().parent / SHARDS_FILE).exists():
        raise UsageError(f"{printable_path(folder)} is one of the shards: bulkinfer merge {shell_word(above.parent)}")
    raise UsageError(f"{printable_path(folder)} holds no {SHARDS_FILE}: give the --output of launches with --shard")


def _already_merged(shards: ShardSet, output: Path) -> JobFile | None:
    """The job in `output` if it is that of the shards, and complete. Raises UsageError if anything else lies there."""
    if own_folder(output).parent == output:
        raise UsageError(f"--output {printable_path(output)} cannot be renamed into place: give a folder in it")
    if not output.is_dir() or not any(output.iterdir()):
        return None
    job = JobFile.read(output)
    if job is not None and job.fingerprint == shards.job.fingerprint and job.shard is None and job.is_complete:
        return job
    raise UsageError(f"{printable_path(output)} exists and is not what these shards give: give another --output")


def _complete_jobs(shards: ShardSet) -> list[JobFile]:
    """The job of every shard, in order. Raises RunError that names what keeps them from being merged, and what to do."""
    jobs, faults, unfinished = list[JobFile](), list[str](), list[Shard]()
    for shard in shards:
        output = shards.output(shard)
        try:
            job = JobFile.read(output)
        except BulkinferError as error:
            faults.append(f"{error}")
            continue
        if job is None or not job.is_complete:
            unfinished.append(shard)
        elif launcher := launcher_in(output):
            faults.append(f"{printable_path(output)} is in use by {launcher}: wait for it")
        elif fault := shards.fault_of(shard, job) or _fault_of_parts(job):
            faults.append(f"{printable_path(output)} {fault}")
        else:
            if (own_folder(output) / STAGING).exists():
                todo = f"bulkinfer retry {shell_word(output)} would put its rows in"
                log.warning(f"warning: {printable_path(output)} has an unfinished retry: {todo}")
            jobs.append(job)
    if unfinished:
        numbers = name_some([str(shard) for shard in unfinished])
        config = replace(begun_config(shards.job, shards.folder), output=str(shards.folder), shard=str(unfinished[0]))
        shown = f"{len(unfinished)} of {shards.count} shards {'is' if len(unfinished) == 1 else 'are'} not complete ({numbers})"
        faults.insert(0, f"{shown}: run {continuing(config)}{', and so the others' if len(unfinished) > 1 else ''}")
    if faults:
        raise RunError(f"{printable_path(shards.folder)} cannot be merged: {name_some(faults)}")
    return jobs


def _fault_of_parts(job: JobFile) -> str:
    """Why the recorded parts of a complete shard do not hold each of its records once; empty if they do."""
    shares = by_partition(step for name in job.parts if (step := part_step(name)) is not None)
    if not shares.keys() <= job.partitions.keys():
        return "has parts of no partition of the job: run its infer_launch again"
    try:
        missing = [gap for index, wanted in job.ranges().items() for gap in missing_ranges(wanted, shares.get(index, ()))]
    except RunError as error:
        return f"is damaged ({error})"
    if missing or sum(map(len, _steps(job))) != job.num_records:
        return "says that it is complete, and its parts do not hold each of its records once: run its infer_launch again"
    return ""


def _steps(job: JobFile) -> list[Step]:
    return [step for name in job.parts if (step := part_step(name)) is not None]


def _whole_job(shards: ShardSet, jobs: list[JobFile], output: Path) -> JobFile:
    """_job.json of the merged output: what the shards share, with the parts of all."""
    parts: dict[str, Any] = {}
    for job in jobs:
        assert not parts.keys() & job.parts.keys(), "each record is in one shard"
        parts |= job.parts
    content = {name: value for name, value in shards.job.content.items() if name != FIELD}
    whole = JobFile({**content, "config": {**shards.job.config, "output": str(output)}, "parts": dict(sorted(parts.items()))})
    whole.complete(_steps(whole))
    assert whole.is_complete, "the shards hold every record"
    return whole


@contextmanager
def _gathered(output: Path) -> Iterator[Path]:
    """A folder for the parts of `output`, on the same file system, to be renamed. What a killed merge left is removed first."""
    remove_abandoned(output.parent, f"{_BEGINNING}*")
    folder = output.with_name(f"{_BEGINNING}{secrets.token_hex(4)}")
    folder.mkdir()
    try:
        write_owner_file(folder)
        (folder / PARTS).mkdir()
        yield folder / PARTS
    finally:
        shutil.rmtree(folder)


def _gather(shard: Path, job: JobFile, folder: Path) -> None:
    """Put the parts of one shard into `folder`. Raises RunError if one is not as it was published."""
    for name, recorded in job.parts.items():
        source, target = shard / name, folder / name
        try:
            _link(source, target)
        except FileNotFoundError:
            raise RunError(f"{printable_path(source)} is gone: run infer_launch of that shard again") from None
        if file_sha256(target) != recorded["sha256"]:
            raise RunError(f"{printable_path(source)} was changed after it was published: bulkinfer verify {shell_word(shard)}")


def _link(source: Path, target: Path) -> None:
    """Link a file under a second name; copy it, and write it through to the disk, where the file system cannot."""
    with naming(target):
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with open_regular(source, most_bytes=MOST_PART_BYTES) as file, target.open("wb") as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
