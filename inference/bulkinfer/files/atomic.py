"""Files that are whole or absent: publish by rename, hashes, JSON with a format number, temporaries of dead processes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bulkinfer.errors import DamagedError, UsageError, first_line
from bulkinfer.host.process_identity import Owner, process_start_ticks, this_table

FORMAT = 1  # of every JSON file and of the Parquet metadata
TEMPORARY_PREFIX = "_tmp-"
_TEMPORARY_NAME = re.compile(rf"{TEMPORARY_PREFIX}([0-9a-f]{{12}})-(\d+)-(\d+)-[0-9a-f]+", re.ASCII)


def fsync_directory(directory: str | os.PathLike[str]) -> None:
    """Make renames in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(final: Path) -> Path:
    """A name beside `final` that tells which process owns it: _tmp-<table of processes>-<pid>-<start>-<random>."""
    pid = os.getpid()
    owner = f"{this_table().digest}-{pid}-{process_start_ticks(pid)}"
    return final.with_name(f"{TEMPORARY_PREFIX}{owner}-{secrets.token_hex(4)}")


@contextmanager
def publishing(final: Path) -> Iterator[Path]:
    """Yield a temporary path; when the block ends well it is fsynced and renamed to `final`, else removed.

    Readers see the old file or the whole new one, never a part. The directory is fsynced after the rename.
    """
    temporary = temporary_path(final)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.rename(temporary, final)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(final)  # what the user knows it by
        raise
    fsync_directory(final.parent)


def temporary_owner(name: str) -> Owner | None:
    """The process that made a temporary of ours; None if `name` is not a name of one."""
    match = _TEMPORARY_NAME.fullmatch(name)
    return Owner(match[1], int(match[2]), int(match[3])) if match else None


def remove_stale_temporaries(directory: Path) -> list[str]:
    """Remove temporary files of ours whose process is gone; returns their names.

    Those of living processes stay, and those of other hosts and containers, which nobody here knows about; so do folders and
    whatever else begins like a temporary of ours.
    """
    removed = []
    for entry in sorted(directory.glob(f"{TEMPORARY_PREFIX}*")):
        owner = temporary_owner(entry.name)
        if owner is None or not owner.is_gone or (entry.is_dir() and not entry.is_symlink()):
            continue
        entry.unlink(missing_ok=True)
        removed.append(entry.name)
    return removed


def own_folder(folder: Path) -> Path:
    """Put a file into a folder that tells whose it is: a temporary of ours that holds host, boot and namespace of the process.

    Returns the file. Whoever ends well removes the folder, or the file where the folder is to stay.
    """
    owner = temporary_path(folder / "owner")
    owner.write_text(canonical_json(this_table()))
    return owner


def remove_abandoned(parent: Path, pattern: str, *, but_with: str = "") -> list[str]:
    """Remove the folders that match `pattern` and that own_folder() gave to processes that are gone; returns their names.

    Those of other users stay, and those of other hosts and containers: nobody knows here which processes run there. So do
    those that hold a file called `but_with`: they were finished.
    """
    removed = []
    for folder in sorted(parent.glob(pattern)):
        try:
            if not folder.is_symlink() and folder.stat().st_uid == os.geteuid() and _is_abandoned(folder, but_with):
                shutil.rmtree(folder)
                removed.append(folder.name)
        except (FileNotFoundError, NotADirectoryError):  # another process removed it meanwhile, or it is no folder
            continue
    return removed


def _is_abandoned(folder: Path, but_with: str) -> bool:
    if but_with and (folder / but_with).exists():
        return False
    owners = [(file, owner) for file in folder.iterdir() if (owner := temporary_owner(file.name)) and file.is_file()]
    told = canonical_json(this_table())
    return any(owner.is_gone and file.read_text(errors="replace") == told for file, owner in owners)


def file_sha256(path: str | os.PathLike[str]) -> str:
    """sha256 of a file's bytes, in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value that is hashed: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Publish `value` as readable JSON with our format number."""
    with publishing(path) as temporary:
        temporary.write_text(json.dumps({"format": FORMAT, **value}, indent=1, ensure_ascii=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of ours.

    Raises UsageError if it is missing or from a newer format, DamagedError if it is damaged.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged (not JSON: {first_line(error)})") from None
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged (holds no JSON object)")
    found = value.get("format")
    if type(found) is int and found > FORMAT:
        raise UsageError(f"{path} has format {found}; this bulkinfer reads format {FORMAT}: install a newer one")
    if type(found) is not int or found != FORMAT:
        raise DamagedError(f"{path} is damaged (its format is {json.dumps(found)[:40]}, not {FORMAT})")
    return value


def safe_name(text: str) -> str:
    """`text` with everything outside [A-Za-z0-9._-] replaced, for directory names."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)
