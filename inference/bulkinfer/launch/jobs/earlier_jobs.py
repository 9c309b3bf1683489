"""Earlier jobs on the same folder of pictures: without --output, a job and its folder are named by what the folder holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError, UsageError, error_sentence
from bulkinfer.files.addresses import place_path
from bulkinfer.files.atomic import canonical_json, safe_name
from bulkinfer.launch.jobs.begun_config import command_with, leaving_out
from bulkinfer.launch.jobs.saved_manifest import listed_before
from bulkinfer.launch.jobs.skip_done import without_done
from bulkinfer.records.dataset import Dataset
from bulkinfer.results.job_file import JobFile, json_sha256
from bulkinfer.results.log_folder import RESULTS, find_log_dir, job_name

log = logging.getLogger("bulkinfer")

_MOST_JOBS = 20  # that are looked at, the newest first


def go_on_with_earlier(config: LaunchConfig, identity: dict[str, Any], dataset: Dataset) -> Dataset:
    """What an unfinished earlier job listed, if only its folder of pictures has changed since; else `dataset`.

    `identity` is that of the job on `dataset`. Logs a warning where another job is gone on with, and where a finished one holds
    rows of these pictures, with the command that reuses them.
    """
    fingerprint = json_sha256(identity)
    own = find_log_dir(Path(config.log_path), job_name(str(identity["model_name"]), fingerprint), fingerprint, None)
    if dataset.scan is None or (own is not None and JobFile.read(own / RESULTS) is not None):
        return dataset
    for output, begun in _earlier(config, identity, dataset):
        if (listed := listed_before(replace(config, output=str(output)), identity, dataset, begun)) is not None:
            log.warning(
                f"warning: {listed.root} has changed since the job in {output} began: it goes on with the "
                f"{listed.num_records} pictures listed then; to run what came since, once it is done: "
                f"{leaving_out(config, output)}"
            )
            return listed
        there = replace(config, skip_done=(str(output),))
        try:
            done = without_done(there, identity, dataset).skipped
        except (BulkinferError, OSError) as error:  # of a job that this one does not need
            log.warning(f"warning: {error_sentence(error)}")
            continue
        if done is not None and done.num_records:
            log.warning(
                f"warning: {output} holds ok rows of {done.num_records} of these {dataset.num_records} pictures, "
                f"and all run again; to run only the others: {leaving_out(config, output)}"
            )
            return dataset
    return dataset


def refuse_changed_folder(config: LaunchConfig, identity: dict[str, Any], dataset: Dataset, begun: JobFile) -> None:
    """Raises UsageError if `begun`, the job in --output, differs from `identity` only in what the folder holds.

    It says how many pictures have no ok row there, with the command that runs those.
    """
    if dataset.scan is None or begun.source != dataset.source or begun.skipped is not None:
        return
    if begun.identity.get("manifest") == identity["manifest"] or not _differs_in_pictures(begun, identity):
        return
    output = place_path(config.output)
    done = without_done(replace(config, output="", skip_done=(config.output,)), identity, dataset)
    changed = f"{dataset.root} has changed since the job in {output} began"
    again = f"to run all again: {command_with(config, overwrite=True)}"
    if not done.num_records:
        raise UsageError(f"{changed}: pictures are gone, and each of the other {dataset.num_records} has an ok row; {again}")
    raise UsageError(
        f"{changed}: {done.num_records} of the {dataset.num_records} pictures there now have no ok row; to run only those: "
        f"{leaving_out(config, output)}; {again}"
    )


def _differs_in_pictures(begun: JobFile, identity: dict[str, Any]) -> bool:
    """True if `begun` is the job of `identity`, but for which pictures its folder held."""
    return canonical_json({**begun.identity, "manifest": identity["manifest"]}) == canonical_json(identity)


def _earlier(config: LaunchConfig, identity: dict[str, Any], dataset: Dataset) -> Iterator[tuple[Path, JobFile]]:
    """The results folders and jobs, the newest first, that differ from `identity` only in which pictures the folder held."""
    pattern = f"{safe_name(str(identity['model_name']))}-*/{RESULTS}"
    folders = sorted(Path(config.log_path).glob(pattern), key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    for folder in folders[:_MOST_JOBS]:
        try:
            begun = JobFile.read(folder)
        except (BulkinferError, OSError) as error:
            log.warning(f"warning: {error_sentence(error)}")
            continue
        if begun is None or begun.source != dataset.source or begun.skipped is not None:
            continue
        if _differs_in_pictures(begun, identity):
            yield folder, begun
