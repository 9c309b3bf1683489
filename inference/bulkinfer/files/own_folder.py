"""The folder of bulkinfer's own files about a results folder, kept apart so that readers of the results find parts only.

Polars reads every file below a folder, whatever its name (docs/adr/0022-own-files-beside-the-results.md). So these files lie
beside the results folder NAME, in .NAME.bulkinfer; and where that is not possible, in .bulkinfer inside it.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import temporary_path
from bulkinfer.files.user_path import real_path
from bulkinfer.types import printable_path, shell_word

SUFFIX = ".bulkinfer"
JOB_FILE = "_job.json"
LOCK_FILE = "_lock.json"
_LONGEST_NAME = 255  # bytes, in the usual file systems
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def own_folder(output: Path) -> Path:
    """The folder for the lock, _job.json and rows that are not published yet of a results folder. It need not exist.

    The place that holds a _job.json is it; then the one that holds a lock, so that it stays the same during a launch.
    Such a folder, and one that lies in it, hold their own files themselves. Raises UsageError if both places hold a _job.json.
    """
    beside, *rest = _places(output)
    if not rest:
        return beside
    (inside,) = rest
    records = [folder / JOB_FILE for folder in (beside, inside) if os.path.lexists(folder / JOB_FILE)]
    if len(records) > 1:
        raise UsageError(f"{records[0]} and {records[1]} are both there: move away the one that does not belong to {output}")
    if records:
        return records[0].parent
    locked = [folder for folder in (beside, inside) if os.path.lexists(folder / LOCK_FILE)]
    if len(locked) == 1:
        return locked[0]
    if not _can_rename(beside.parent, inside.parent) or (inside.is_dir() and not beside.is_dir()):
        return inside
    return beside


def make_own_folder(output: Path) -> Path:
    """The own folder of `output`, made with the folders above it; inside of `output` that is `output` itself, too.

    Raises UsageError if files of the place that holds _job.json cannot be renamed into `output`, which is a mount point.
    """
    if isinstance(output, AddressPath):  # nothing is made for a prefix
        return own_folder(output)
    _make(output.parent, output)
    folder, inside = own_folder(output), _places(output)[-1]
    try:
        _make(folder, output)
        probe = temporary_path(folder / "probe")  # rights do not decide: file servers have rules of their own
        try:
            probe.touch(exist_ok=False)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        is_used = any(os.path.lexists(folder / name) for name in (JOB_FILE, LOCK_FILE))
        if error.errno not in _NOT_WRITABLE or is_used or folder == inside:
            raise
        inside.mkdir(parents=True, exist_ok=True)
        return inside
    if not _can_rename(folder, output):
        here, there = shell_word(folder), shell_word(inside)
        raise UsageError(
            f"{output} is a mount point, so that files in {folder} cannot be renamed into it: move them into it: "
            f"cp -r {here}/. {there} && rm -r {here}"
        )
    return folder


def _make(folder: Path, output: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:  # as in /proc, though the folder above is there
        there = next(place for place in folder.parents if place.is_dir())
        raise UsageError(f"{output} cannot be made: {there} takes no folders: give another folder") from None


def require_outside_results(path: Path, option: str, *, is_results: bool = False) -> None:
    """Raises UsageError if `path` lies in the results of a job: programs that read these would read its files too.

    `is_results`: `path` is to hold results itself, of a job that may have begun there.
    """
    place = real_path(path)
    for above in place.parents if is_results else (place, *place.parents):
        own = (above.with_name(f".{above.name}{SUFFIX}"), above / SUFFIX) if above.name else ()
        if any(os.path.lexists(folder / JOB_FILE) for folder in own):
            shown = f"{option} {printable_path(path)}"
            raise UsageError(f"{shown}: {printable_path(above)} holds the results of a job: give a folder outside of it")


def other_places(output: Path) -> list[Path]:
    """The folders besides own_folder(output) in which a launcher of this or an earlier version may hold a lock."""
    if isinstance(output, AddressPath):
        return []
    return [folder for folder in (output, *_places(output)) if folder != own_folder(output)]


def _places(output: Path) -> list[Path]:
    """The folders that can be the own folder of `output`: beside it, if a name allows that, and inside it.

    In a bucket it is the one inside: permissions, copies and moves there go by prefixes.
    """
    is_address = isinstance(output, AddressPath)
    is_linked = not is_address and (output.is_symlink() or output.name in ("", ".."))
    place = real_path(output) if is_linked else output  # one folder has one lock
    if any(folder.name.startswith(".") and folder.name.endswith(SUFFIX) for folder in (place, place.parent)):
        return [output]
    if is_address:
        return [output / SUFFIX]
    inside, name = place / SUFFIX, f".{place.name}{SUFFIX}"
    return [inside] if not place.name or len(os.fsencode(name)) > _LONGEST_NAME else [place.with_name(name), inside]


def _can_rename(folder: Path, output: Path) -> bool:
    """False if `output` is a mount point: what lies beside it is lost with a container, and cannot be renamed into it.

    A bind mount has the device number of the folder above. But the kernel compares the mounts before it looks for the file.
    """
    name = f"_{secrets.token_hex(8)}"  # of no file
    try:
        os.rename(folder / name, output / name)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
    return not (folder.is_dir() and output.is_dir()) or folder.stat().st_dev == output.stat().st_dev
