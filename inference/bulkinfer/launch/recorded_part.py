"""A published part as _job.json records it: compared without being read in full, where that is possible."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from bulkinfer.errors import RunError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import file_sha256
from bulkinfer.results.job_file import PartEntry
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import MOST_PART_BYTES, Part, inspect_part
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Step


def check_part(output: Path, step: Step, recorded: PartEntry | None, fingerprint: str, tag: str = "") -> Part:
    """A published file. Its hash is compared with the `recorded` one; without a usable record the file is read in full.

    An object with the `tag` that was recorded is not read: a job may have more of them than can be read in a day.
    Raises RunError if the file is damaged or was changed.
    """
    if recorded is None or recorded["ok"] + sum(recorded["stages"].values()) != len(step):
        return replace(inspect_part(output, step, fingerprint), tag=tag)
    known = Part(step, recorded["ok"], recorded["stages"], recorded["sha256"], tag=tag)
    if tag and recorded.get("tag") == tag:
        return known
    name = part_name(step)
    if _sha256(output, name) != recorded["sha256"]:
        part = replace(inspect_part(output, step, fingerprint), tag=tag)
        if part.replaces == recorded["sha256"]:  # a retry replaced it, and was killed before it could record that
            return part
        raise RunError(f"{output / name} was changed after it was published")
    return known


def _sha256(output: Path, name: str) -> str:
    if isinstance(output, AddressPath):
        return hashlib.sha256(output_store(output).read(name, MOST_PART_BYTES)).hexdigest()
    return file_sha256(output / name, most_bytes=MOST_PART_BYTES)
