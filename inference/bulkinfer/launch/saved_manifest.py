"""What a job listed when it began, kept in its log folder: for going on where the folder of pictures has changed since."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.launch.job import Job, job_name
from bulkinfer.records.layout import MANIFEST_FILE, carries_dataset
from bulkinfer.records.manifest import Dataset, Manifest, Partition, Skipped
from bulkinfer.results.job_file import read_job
from bulkinfer.results.parquet_parts import published_steps


class _Skipped(TypedDict):
    outputs: list[str]
    num_records: int
    sha256: str


def kept_manifest(log_dir: Path, index: int) -> Path:
    """Where a launch keeps the manifest of a partition that has none in the data set."""
    return log_dir / (f"manifest-{index:05d}.parquet" if index else MANIFEST_FILE)


def kept_dataset(found: dict[str, Any], log_dir: Path, data_dir: Path) -> Dataset | None:
    """The records of the job out of the manifests that its launch kept; None if it kept none, since partitions have theirs.

    A picture of a plain folder that was mended has another size: scanned again, it would be another job.
    """
    manifests = {}
    for index, entry in found["partitions"].items():
        path = kept_manifest(log_dir, int(index))
        if not path.is_file():
            return None
        manifests[int(index)] = Manifest.read(path)
        if manifests[int(index)].content_hash != entry.get("manifest_sha256"):
            return None
    manifests = {index: replace(manifest, root=_root(data_dir, index, manifest)) for index, manifest in manifests.items()}
    skipped = found.get("skipped")
    if skipped is not None and mismatch(skipped, _Skipped):
        return None
    left_out = None if skipped is None else Skipped(tuple(skipped["outputs"]), skipped["num_records"], skipped["sha256"])
    partitions = tuple(Partition(index, manifest, manifest.root) for index, manifest in sorted(manifests.items()))
    hashed = str(found["identity"].get("manifest"))
    return Dataset(data_dir, partitions, str(found.get("source")), hashed, skipped=left_out, is_listed=False)


def _root(data_dir: Path, index: int, manifest: Manifest) -> bytes:
    """Where the pictures of a kept manifest lie now, since the data set may lie elsewhere than when the job began."""
    root = os.path.abspath(os.fsencode(data_dir))
    if not carries_dataset(root):  # a plain folder
        return root
    return manifest.root if manifest.mode == "manifest" else os.path.join(root, b"%d" % index)  # links lie in the partition


def listed_before(job: Job, output: Path) -> Dataset | None:
    """What an unfinished job in `output` listed, where its plain folder has changed since and nothing else has.

    None where the job is to be taken as it is: it is new, complete, the same, another one, or its listing is not there.
    """
    if job.config.overwrite or job.dataset is None or job.dataset.scan is None or (found := read_job(output)) is None:
        return None
    there, now = found["identity"], job.identity
    if found["fingerprint"] == job.fingerprint or canonical_json({**there, "manifest": now["manifest"]}) != canonical_json(now):
        return None
    if sum(map(len, published_steps(output))) == found["num_records"]:
        return None
    log_dir = Path(job.config.log_path) / job_name(str(there.get("model_name")), found["fingerprint"])
    return kept_dataset(found, log_dir, job.dataset.root)
