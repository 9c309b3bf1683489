"""--shard: which shard a launch runs, where it writes, and what all shards of the job have in common."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.addresses import AddressPath, place_path
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.launch.jobs.job import Job, check_same_job, new_job_file, resolved_of, warn_of_changes
from bulkinfer.results.control_files import control_exists, write_new_control
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.shard import SHARDS_FILE, Shard
from bulkinfer.results.shard_set import DECIDED, FIELD, ShardSet, read_shard_set
from bulkinfer.types import printable_path, shell_word

_MOST_SHARDS = 100_000  # in one folder
_NUMBERS = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)
_FORMS = "give I/N, such as 3/16 for the third of 16 shards, or slurm, or kubernetes/N"


def with_shard(config: LaunchConfig) -> LaunchConfig:
    """`config` whose shard is a number, and whose output is the folder of that shard; unchanged without --shard.

    Raises UsageError if the shard cannot be, the environment does not say it, or an option that it needs is missing.
    """
    if not config.shard:
        return config
    if config.input != "pictures":
        raise UsageError(f"--shard {config.shard} is of pictures, and --{config.input} has none: leave one out")
    if not config.batches_per_step:
        raise UsageError(f"--shard {config.shard} needs --batches_per_step N: all shards of a job have steps of one length")
    if not config.output:
        raise UsageError(f"--shard {config.shard} needs --output FOLDER, the same for all shards: each gets a folder in it")
    index, count = _numbers(config.shard)
    shard = Shard(index, count, config.batches_per_step * config.batch_size)
    given = place_path(config.output)
    output = given if given.name == shard.folder else given / shard.folder  # the folder of the shard itself may be given, too
    return replace(config, shard=str(shard), output=str(output))


def shard_of(config: LaunchConfig) -> Shard | None:
    """The shard of a config that with_shard has returned."""
    if not config.shard:
        return None
    return Shard(*_numbers(config.shard), config.batches_per_step * config.batch_size)


def _numbers(word: str) -> tuple[int, int]:
    """The number of the shard, from 1, and how many there are."""
    if word == "slurm":
        return _of_slurm()
    if (pods := word.removeprefix("kubernetes/")) != word and pods.isdecimal():
        return _checked(word, _variable("JOB_COMPLETION_INDEX", word, "an indexed job of Kubernetes sets it") + 1, int(pods))
    if (match := _NUMBERS.fullmatch(word)) is None:
        raise UsageError(f"--shard {word} is no shard: {_FORMS}")
    return _checked(word, int(match[1]), int(match[2]))


def _of_slurm() -> tuple[int, int]:
    who = "srun sets it for each of its tasks"
    task, count = _variable("SLURM_PROCID", "slurm", who), _variable("SLURM_NTASKS", "slurm", who)
    if count == 1 and "SLURM_ARRAY_TASK_ID" in os.environ:
        raise UsageError(
            "--shard slurm counts the tasks of srun, and this is the only one: in a job array from 1 to N "
            'give --shard "$SLURM_ARRAY_TASK_ID/N"'
        )
    return _checked("slurm", task + 1, count)


def _variable(name: str, word: str, who: str) -> int:
    """A number in the environment. Raises UsageError if it is not there."""
    if (value := os.environ.get(name)) is None:
        raise UsageError(f"--shard {word} takes its number from the variable {name}, which is not set ({who}): {_FORMS}")
    if not (value.isascii() and value.isdecimal()):
        raise UsageError(f"the environment variable {name} is {value!r}, not a number: {_FORMS}")
    return int(value)


def _checked(word: str, index: int, count: int) -> tuple[int, int]:
    if not 1 <= count <= _MOST_SHARDS:
        raise UsageError(f"--shard {word} is one of {count} shards: give 1 to {_MOST_SHARDS:,}, as in 3/16")
    if not 1 <= index <= count:
        raise UsageError(f"--shard {word}: there is no shard {index} of {count}: they are numbered from 1 to {count}")
    return index, count


def shards_beside(config: LaunchConfig, begun: JobFile | None) -> ShardSet | None:
    """The shards that other launches have begun in the folder of this one; None if there are none.

    `begun` is the job in --output. Raises UsageError if this launch is no shard and its output is one or holds some, or if the
    number of shards or the length of steps is another one there.
    """
    if not config.shard:
        _refuse_shards(config, begun)
        return None
    output = place_path(config.output)
    if (there := read_shard_set(output.parent)) is None:
        return None
    shard = shard_of(config)
    assert shard is not None, "the config has a shard"
    _require_division(there, shard, config.batch_size)
    return there


def _require_division(there: ShardSet, shard: Shard, batch_size: int) -> None:
    """Raises UsageError if the job is divided otherwise there: into another number of shards, or steps of another length."""
    shown, size = printable_path(there.folder), shard.step_records
    if shard.count != there.count:
        otherwise = f"give --shard I/{there.count}, or another --output; {_remove(there)}"
        raise UsageError(f"{shown} holds the shards of a job in {there.count}, not in {shard.count}: {otherwise}")
    if size != there.step_records:
        batches, rest = divmod(there.step_records, batch_size)
        advice = "give another --output" if rest else f"give --batches_per_step {batches}, or another --output"
        raise UsageError(
            f"a step of the shards in {shown} has {there.step_records} records, and one of this launch {size}: {advice}"
        )


def _refuse_shards(config: LaunchConfig, begun: JobFile | None) -> None:
    if begun is not None and begun.shard is not None:
        batches = begun.config.get("batches_per_step")
        raise UsageError(
            f"{printable_path(config.output)} is shard {begun.shard} of a job: give --shard {begun.shard} "
            f"--batches_per_step {batches} --output {shell_word(place_path(config.output).parent)}"
        )
    if config.output and control_exists(place_path(config.output) / SHARDS_FILE):
        shown = printable_path(config.output)
        raise UsageError(f"--output {shown} holds the shards of a job: give --shard, or another --output")


def refuse_other_job(shards: ShardSet, identity: dict[str, Any]) -> None:
    """Raises UsageError that names each differing field if the other shards are of another job than `identity`."""
    otherwise = f"give the options of the other shards, or another --output; {_remove(shards)}"
    check_same_job(shards.folder, shards.job, identity, None, otherwise)


def _remove(shards: ShardSet) -> str:
    return f"bulkinfer clean {shell_word(shards.folder)} removes the shards there"


def join_shards(job: Job, output: Path) -> None:
    """Take part in the job of all shards: the first launch writes what `auto` became for it, and the others must agree.

    `output` is the folder of this shard. Raises RunError if another launch decided otherwise a moment ago, and UsageError if it
    began another job there.
    """
    assert job.shard is not None, "the job is a shard"
    folder = output.parent
    if not isinstance(folder, AddressPath):
        remove_stale_temporaries(folder)
    if (there := read_shard_set(folder)) is None and write_new_control(folder / SHARDS_FILE, _content(job, job.shard)):
        return
    there = there or read_shard_set(folder)
    assert there is not None, "one of the two wrote it"
    _require_division(there, job.shard, job.config.batch_size)
    refuse_other_job(there, job.identity)
    ours = resolved_of(job)
    if any(there.job.resolved.get(name) != ours.get(name) for name in DECIDED):
        raise RunError(f"another launch began the first shard in {printable_path(folder)} meanwhile: run the command again")
    warn_of_changes(job, there.folder, there.job)


def _content(job: Job, shard: Shard) -> dict[str, Any]:
    """What SHARDS_FILE holds: the _job.json of the whole job, and how it is divided."""
    whole = replace(job, shard=None, config=replace(job.config, shard=""))
    shared = {"count": shard.count, "step_records": shard.step_records}
    return {**new_job_file(whole).content, "config": {**asdict(whole.config), "output": ""}, FIELD: shared}
