"""An output directory and a job: is it ours, what is published already, what is left to do."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import canonical_json, file_sha256, remove_stale_temporaries
from bulkinfer.host.versions import versions
from bulkinfer.launch.job import Job, check_same_job, describe_job, version_changes
from bulkinfer.results.job_file import JOB_FILE, read_job, write_job
from bulkinfer.results.parquet_parts import Part, inspect_part, published_steps, set_aside
from bulkinfer.results.part_names import STAGING, by_partition, is_set_aside, missing_ranges, part_name, part_step
from bulkinfer.runtime.devices import AUTO
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.types import Step

log = logging.getLogger("bulkinfer")


def joined(job: Job, output: Path) -> Job:
    """The job under the identity with which it began in `output`, if it began there.

    It is also the same where `auto` was asked for there and what it became is asked for now. The identity stays the one there:
    the parts bear its fingerprint.
    """
    if job.config.overwrite or (found := read_job(output)) is None:
        return job
    there, now, resolved = dict(found["identity"]), job.identity, found["resolved"]
    if there.get("precision") == AUTO and resolved.get("graph_sha256") == now["graph_sha256"]:
        there |= {name: now[name] for name in ("graph_sha256", "weights_sha256")}  # of the variant that it led to
    for name, became in (("precision", "precision"), ("device", "provider")):
        if there.get(name) == AUTO and now[name] != AUTO:
            there[name] = resolved.get(became)
    return replace(job, identity=found["identity"]) if canonical_json(there) == canonical_json(now) else job


def begun_with(job: Job, output: Path) -> dict[str, Any]:
    """What `auto` became when the job in `output` began; empty if a launch would begin it anew.

    Raises UsageError if the directory belongs to another job, or to a provider that this version does not know.
    """
    if job.config.overwrite or (found := read_job(output)) is None:
        return {}
    check_same_job(output, found, job)
    resolved: dict[str, Any] = found["resolved"]
    if resolved["provider"] not in PROVIDERS:
        provider = resolved["provider"]
        raise UsageError(
            f"{output / JOB_FILE} was begun on provider {provider}, which is unknown here: install a newer bulkinfer"
        )
    return resolved


def claim_output(job: Job, output: Path) -> dict[str, Any]:
    """Make the directory ours, or refuse it; returns the content of its _job.json.

    Raises UsageError if it belongs to another job, RunError if it has parts but no sound _job.json.
    """
    remove_stale_temporaries(output)
    if job.config.overwrite:
        remove_results(output)
    elif (found := read_job(output)) is not None:
        return _continue(job, output, found)
    if strangers := published_steps(output):
        raise _strangers(output, strangers)
    return describe_job(job, {})


def preview(job: Job, output: Path) -> None:
    """For --dry_run: what a launch would find in `output` and what it would do; changes nothing.

    Raises what claim_output would raise.
    """
    if job.config.overwrite:
        log.info(f"--overwrite: would remove {told_files(_all_ours(output))} from {output}")
        return
    found, published = read_job(output), published_steps(output)
    if found is not None:
        _check_graph(job, output, found["resolved"])
        todo = sum(map(len, _missing(job, published)))
        log.info(f"resume: {job.num_records - todo} of {job.num_records} records are done, {todo} to do")
    elif published:
        raise _strangers(output, published)


def _strangers(output: Path, published: list[Step]) -> RunError:
    return RunError(f"{output} holds {len(published)} parts but no {JOB_FILE}: give another --output, or --overwrite")


def _continue(job: Job, output: Path, found: dict[str, Any]) -> dict[str, Any]:
    """The description of the job that began in `output`, where it is the same."""
    resolved = begun_with(job, output)
    if (resolved["provider"], resolved.get("precision", job.choice.precision)) != (job.choice.provider, job.choice.precision):
        raise RunError(f"another launch began the job in {output} meanwhile: run the command again")
    _check_graph(job, output, resolved)
    changes = version_changes(found["versions"], versions())
    if (before := resolved.get("devices", job.choice.models)) != job.choice.models:
        there = ", ".join(map(str, before)) if isinstance(before, list) else before
        changes.append(f"{there} (now {', '.join(job.choice.models)})")
    if changes:
        log.warning(
            f"{job.command}: warning: {output} was begun with {', '.join(changes)}: new rows may differ from those there"
        )
    return {**found, "complete": False}


def _check_graph(job: Job, output: Path, resolved: dict[str, Any]) -> None:
    """Raises UsageError where `auto` led to a variant of the network that was made anew since."""
    if (ran := resolved.get("graph_sha256", job.model.sidecar.sha256)) != job.model.sidecar.sha256:
        raise UsageError(
            f"{output} was begun with another {job.choice.precision} variant of the network (graph sha256 {str(ran)[:12]}): "
            "give another --output, or --overwrite to remove its results"
        )


def remove_results(output: Path) -> None:
    """--overwrite: remove our files from the output directory, and say how many; anything else stays."""
    found = _all_ours(output)
    if found:
        log.info(f"--overwrite: removes {told_files(found)} from {output}")
    for path in found:
        path.unlink()
    remove_if_empty(output / STAGING)


def _all_ours(output: Path) -> dict[Path, str]:
    return ours_in(output / STAGING, " of an unfinished retry") | ours_in(output)


def ours_in(folder: Path, where: str = "") -> dict[Path, str]:
    """The files of ours in a directory of results, and of what kind each is, `where` behind it."""
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        kind = JOB_FILE if path.name == JOB_FILE else "part" if part_step(path.name) else ""
        kind = kind or ("part that was set aside" if is_set_aside(path.name) else "")
        if kind and (path.is_symlink() or path.is_file()):
            found[path] = kind + where
    return found


def told_files(found: dict[Path, str]) -> str:
    """How many files, and of what kinds."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(found.values()).items()))
    return f"{len(found)} files ({kinds})"


def remove_if_empty(folder: Path) -> None:
    """Remove a folder of ours, unless somebody put something into it."""
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def remaining_steps(job: Job, output: Path, description: dict[str, Any]) -> list[Step]:
    """The ranges that no whole published file covers; damaged files are set aside. Fills description["parts"]."""
    done, known = [], description["parts"]
    for step in published_steps(output):
        if step.partition not in job.counts:
            raise RunError(f"{output / part_name(step)} belongs to no partition of {job.config.data_dir or 'this job'}")
        try:
            part = check_part(output, step, known.get(part_name(step)), job.fingerprint)
        except RunError as error:
            log.warning(f"{job.command}: {error}; set aside as {set_aside(output, step).name}, its records run again")
            known.pop(part_name(step), None)
            continue
        done.append(step)
        known[part.name] = part.as_json()
    for name in set(known) - {part_name(step) for step in done}:
        del known[name]  # published once, and gone since: its records run again
    todo = _missing(job, done)
    if done:
        log.info(f"resume: {sum(map(len, done))} of {job.num_records} records are done, {sum(map(len, todo))} to do")
    return todo


def _missing(job: Job, done: list[Step]) -> list[Step]:
    """The ranges of all partitions that no file in `done` covers."""
    shares = by_partition(done)
    return [step for index, count in sorted(job.counts.items()) for step in missing_ranges(index, count, shares.get(index, ()))]


def check_part(output: Path, step: Step, recorded: dict[str, Any] | None, fingerprint: str) -> Part:
    """A published file as it was recorded, by its hash; read in full where it was not, or not rightly.

    Raises RunError if it is not sound.
    """
    if recorded is None or recorded["ok"] + sum(recorded["stages"].values()) != len(step):
        return inspect_part(output, step, fingerprint)
    path = output / part_name(step)
    if file_sha256(path) != recorded["sha256"]:
        part = inspect_part(output, step, fingerprint)
        if part.replaces == recorded["sha256"]:  # by a retry that ended before it could record that
            return part
        raise RunError(f"{path} was changed after it was published")
    return Part(step, recorded["ok"], recorded["stages"], recorded["sha256"])


def note_parts(job: Job, output: Path, description: dict[str, Any], reported: list[Part]) -> None:
    """Bring description["parts"] up to what is published, also by workers that were killed before they could report.

    What those had begun to write is removed.
    """
    remove_stale_temporaries(output)
    parts = description["parts"]
    for part in reported:
        parts[part.name] = part.as_json()
    published = published_steps(output)
    for step in published:
        if part_name(step) not in parts:
            parts[part_name(step)] = inspect_part(output, step, job.fingerprint).as_json()
    counted = Counter[int]()
    for step in published:
        counted[step.partition] += len(step)
    description["complete"] = all(counted[index] == count for index, count in job.counts.items())
    write_job(output, description)
