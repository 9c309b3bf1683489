"""The records of a job as it began, kept in its log folder: so it can go on after its folder of pictures has changed."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.config import LaunchConfig
from bulkinfer.files.addresses import place_path, whole_path
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.records.archives.archive_dataset import archive_root
from bulkinfer.records.dataset import Dataset, Partition, Skipped
from bulkinfer.records.layout import MANIFEST_FILE, carries_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.moved_pictures import changed_archives, found_again, warn_of_changes
from bulkinfer.results.find_output import logs_of_listing
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.parquet_parts import published_steps


class _Skipped(TypedDict):
    outputs: list[str]
    num_records: int
    sha256: str


def kept_manifest(log_dir: Path, index: int) -> Path:
    """Where a launch keeps the manifest of a partition that has no file in the data set."""
    return log_dir / (f"manifest-{index:05d}.parquet" if index else MANIFEST_FILE)


def is_kept_manifest(name: str) -> bool:
    """True for the names that kept_manifest gives."""
    return name == MANIFEST_FILE or re.fullmatch(r"manifest-[0-9]{5,}\.parquet", name) is not None


def kept_dataset(begun: JobFile, output: Path, log_path: str, data_dir: Path) -> Dataset | None:
    """The records of the job in `output` out of the manifests that its launch kept; None if it kept none, as for partitions.

    A retry needs them: a picture of a plain folder that was repaired has another size, so a new scan would give another job.
    """
    found = (_kept_in(log_dir, begun, data_dir) for log_dir in logs_of_listing(output, begun, log_path))
    return next((dataset for dataset in found if dataset is not None), None)


def _kept_in(log_dir: Path, begun: JobFile, data_dir: Path) -> Dataset | None:
    manifests = {}
    for index, entry in begun.partitions.items():
        path = kept_manifest(log_dir, index)
        if not path.is_file():
            return None
        manifest = Manifest.read(path)
        if manifest.content_hash != entry.get("manifest_sha256"):
            return None
        manifests[index] = _with_changes(replace(manifest, root=_root(data_dir, index, manifest)))
    skipped = begun.skipped
    if skipped is not None and mismatch(skipped, _Skipped):
        return None
    left_out = None if skipped is None else Skipped(tuple(skipped["outputs"]), skipped["num_records"], skipped["sha256"])
    partitions = tuple(Partition(index, manifest, manifest.root) for index, manifest in sorted(manifests.items()))
    hashed = str(begun.identity.get("manifest"))
    return Dataset(data_dir, partitions, begun.source, hashed, skipped=left_out, is_listed=False)


def _root(data_dir: Path, index: int, manifest: Manifest) -> bytes:
    """Where the pictures of a kept manifest lie now: the data set may have been moved since the job began."""
    root = whole_path(data_dir)
    if not carries_dataset(root):  # a plain folder, or archives
        return archive_root(data_dir) if manifest.archives else root
    return manifest.root if manifest.mode == "manifest" else os.path.join(root, b"%d" % index)  # links lie in the partition


def _with_changes(manifest: Manifest) -> Manifest:
    """The manifest with the places that its pictures have now, if its archives have changed."""
    if not (changed := changed_archives(manifest)):
        return manifest
    warn_of_changes(changed)
    return found_again(manifest)


def listed_before(config: LaunchConfig, identity: dict[str, Any], dataset: Dataset, begun: JobFile) -> Dataset | None:
    """What `begun`, the unfinished job in --output, listed, if since then its plain folder has changed and nothing else has.

    `identity` is that of the job on `dataset`, the folder as it is now. None if the job is complete, the same or another one,
    began on another folder, or its manifest was not kept.
    """
    there = begun.identity
    if dataset.scan is None or there.get("manifest") == identity["manifest"] or begun.source != dataset.source:
        return None
    if canonical_json({**there, "manifest": identity["manifest"]}) != canonical_json(identity):
        return None
    if sum(map(len, published_steps(place_path(config.output)))) == begun.num_records:
        return None
    listed = kept_dataset(begun, place_path(config.output), config.log_path, dataset.root)
    return None if listed is None else replace(listed, found_now=dataset.scan)
