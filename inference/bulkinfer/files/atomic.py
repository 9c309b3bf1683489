"""Files that are complete or absent: publish by rename, hashes, files of dead processes."""

from __future__ import annotations

import errno
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

from bulkinfer.errors import DamagedError
from bulkinfer.files.guarded import open_regular, read_bytes
from bulkinfer.host.process_identity import Owner, process_start_ticks, this_table

FORMAT = 1  # of the metadata of Parquet files, and of lock files
TEMPORARY_PREFIX = "_tmp-"
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # errors of file systems without hard links
_TEMPORARY_NAME = re.compile(rf"{TEMPORARY_PREFIX}([0-9a-f]{{12}})-(\d+)-(\d+)-[0-9a-f]+", re.ASCII)


def fsync_directory(directory: str | os.PathLike[str]) -> None:
    """Make renames in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(final: Path) -> Path:
    """A name beside `final` that identifies the process that owns it: _tmp-<process table>-<pid>-<start>-<random>."""
    pid = os.getpid()
    owner = f"{this_table().digest}-{pid}-{process_start_ticks(pid)}"
    return final.with_name(f"{TEMPORARY_PREFIX}{owner}-{secrets.token_hex(4)}")


@contextmanager
def naming(final: Path) -> Iterator[None]:
    """Let an error of the operating system name `final` where it names no file, or a temporary one, which no user knows."""
    try:
        yield
    except OSError as error:
        if error.filename is None or Path(os.fsdecode(error.filename)).name.startswith(TEMPORARY_PREFIX):
            error.filename = str(final)
        raise


@contextmanager
def publishing(final: Path, folder: Path | None = None, *, is_durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path. If the block succeeds, the file is fsynced and renamed to `final`; otherwise it is removed.

    Readers see the old file or the complete new one. The directory is fsynced after the rename. The temporary file lies in
    `folder`, of the same file system; by default beside `final`. A file that need not be durable is not fsynced.
    """
    temporary = temporary_path(final if folder is None else folder / final.name)
    with naming(final):
        try:
            yield temporary
            if is_durable:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            os.rename(temporary, final)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    if is_durable:
        fsync_directory(final.parent)


def publish_new(final: Path, data: bytes) -> bool:
    """Publish a file that is complete at once, unless there is one of this name; returns whether it was published.

    Of several processes one succeeds. Where the file system has no hard links, the last one of those that try at the same
    moment replaces the file of the others.
    """
    temporary = temporary_path(final)
    with naming(final):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, final)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                if final.exists():
                    return False
                os.rename(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)
    fsync_directory(final.parent)
    return True


def temporary_owner(name: str) -> Owner | None:
    """The process that created the temporary file called `name`; None if temporary_path() does not make such names."""
    match = _TEMPORARY_NAME.fullmatch(name)
    return Owner(match[1], int(match[2]), int(match[3])) if match else None


def remove_stale_temporaries(directory: Path) -> list[str]:
    """Remove temporary files whose process has ended; returns their names.

    Files of running processes stay. So do files of other hosts and containers, whose processes cannot be looked up from here,
    folders, and files whose names only begin like a temporary file.
    """
    removed = []
    for entry in sorted(directory.glob(f"{TEMPORARY_PREFIX}*")):
        owner = temporary_owner(entry.name)
        if owner is None or not owner.is_gone or (entry.is_dir() and not entry.is_symlink()):
            continue
        entry.unlink(missing_ok=True)
        removed.append(entry.name)
    return removed


def write_owner_file(folder: Path) -> Path:
    """Mark `folder` as owned by this process, with a temporary file that holds host, boot and process namespace.

    Returns the file. When the work is done, remove the folder; or only the file, if the folder is to stay.
    """
    owner = temporary_path(folder / "owner")
    with naming(folder):
        owner.write_text(canonical_json(this_table()))
    return owner


def remove_abandoned(parent: Path, pattern: str, *, keep_with: str = "") -> list[str]:
    """Remove the folders that match `pattern` and that write_owner_file() marked for processes that have ended.

    Returns their names. Folders of other users stay, and folders of other hosts and containers, whose processes cannot be
    looked up from here. So do folders that hold a file called `keep_with`: their work was finished.
    """
    removed = []
    for folder in sorted(parent.glob(pattern)):
        try:
            if not folder.is_symlink() and folder.stat().st_uid == os.geteuid() and _is_abandoned(folder, keep_with):
                shutil.rmtree(folder)
                removed.append(folder.name)
        except (FileNotFoundError, NotADirectoryError):  # another process has removed it, or it is not a folder
            continue
    return removed


def _is_abandoned(folder: Path, keep_with: str) -> bool:
    if keep_with and (folder / keep_with).exists():
        return False
    owners = [(file, owner) for file in folder.iterdir() if (owner := temporary_owner(file.name)) and file.is_file()]
    here = canonical_json(this_table())
    return any(owner.is_gone and _holds(file, here) for file, owner in owners)


def _holds(file: Path, text: str) -> bool:
    try:
        return read_bytes(file, len(text)) == text.encode()
    except DamagedError:  # larger, or no file
        return False


def file_sha256(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> str:
    """sha256 of the bytes of a regular file, in hex. Raises DamagedError if it is a folder, a pipe, a device, or larger than
    `most_bytes`: a sparse file of terabytes would be hashed for hours.
    """
    with open_regular(path, most_bytes=most_bytes) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """The form of a JSON value that is hashed: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def safe_name(text: str) -> str:
    """`text` with everything outside [A-Za-z0-9._-] replaced, for directory names."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)
