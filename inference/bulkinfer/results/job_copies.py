"""Where a _job.json that is missing or damaged may be found again: beside a results folder that was renamed, or in the logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.guarded import JOB_BYTES
from bulkinfer.files.json_file import read_json
from bulkinfer.files.own_folder import JOB_FILE
from bulkinfer.files.user_path import real_path
from bulkinfer.results.log_folder import of_fingerprint
from bulkinfer.results.parquet_parts import listed_steps, recorded_fingerprint
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Step, printable_path, shell_word

_STEM = Path(JOB_FILE).stem


def copy_command(output: Path, step: Step | None = None, log_path: str = "") -> str:
    """A sentence with the command that brings back the _job.json of a part in `output`, by default the first; "" if none does.

    `log_path` is the folder of job logs, if it is known.
    """
    if isinstance(output, AddressPath):  # no command copies one there
        return ""
    steps = list(listed_steps(output)) if step is None else [step]
    found = _job_file_of(output / part_name(steps[0]), output, log_path) if steps else None
    if found is None:
        return ""
    command = f"cp {shell_word(found)} {shell_word(output / JOB_FILE)}"
    return f"{printable_path(found)} is the {JOB_FILE} of a job with the same pictures and settings: {command}"


def _job_file_of(part: Path, output: Path, log_path: str) -> Path | None:
    """A sound _job.json with the fingerprint of a part: of a results folder that was renamed, or of its logs.

    The same job may have run into several outputs: one that records this very file is preferred.
    """
    if not (fingerprint := recorded_fingerprint(part)):
        return None
    above = real_path(output).parent
    places = [*sorted(above.glob(f".*.bulkinfer/{_STEM}*.json")), above / JOB_FILE]
    for folder in dict.fromkeys([Path(log_path or LaunchConfig.log_path), above, above / LaunchConfig.log_path]):
        places += [logs / JOB_FILE for logs in of_fingerprint(folder, fingerprint)]
    found = {path: content for path in places if (content := _sound(path)) and content.get("fingerprint") == fingerprint}
    sha256 = file_sha256(part) if len(found) > 1 else ""
    return max(found, key=lambda path: _records(found[path], part.name, sha256), default=None)


def _sound(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, most_bytes=JOB_BYTES) if path.exists() else {}
    except (BulkinferError, OSError):
        return {}


def _records(content: dict[str, Any], name: str, sha256: str) -> bool:
    parts = content.get("parts")
    part = parts.get(name) if isinstance(parts, dict) else None
    return isinstance(part, dict) and part.get("sha256") == sha256
