"""The errors of bulkinfer.

BulkinferError                one sentence for the user: what happened, where, what to do
├── UsageError      exit 2    the command, its flags or what they name is wrong; nothing was started
│   └── AbsentError           neither packages nor hardware of the requested provider are on this host
├── RunError        exit 1    the job could not be done or finished
│   ├── LockedError           another launcher owns the results folder
│   │   └── DamagedLockError  a lock file does not say who owns it
│   ├── ForeignError          a part in a results folder belongs to another job
│   ├── DamagedError          a file of bulkinfer is damaged; its reader adds with advising() what to do
│   ├── UnreadableError       a file could not be read for lack of memory or threads
│   ├── PictureError          a picture cannot be trained or validated on; the caller adds what to do
│   ├── RankLostError         another rank of a training run has ended, or does not answer
│   ├── ShapeError            an output of a network has another shape than its graph declares
│   ├── StoreError            a store of objects, such as a bucket, cannot be used
│   │   └── AbsentStoreError exit 2  there is no such bucket
│   ├── ObjectError           one object of a store cannot be read or written
│   │   ├── AbsentObjectError the store has no such object
│   │   └── ConflictError     the object is there already, or is not the one that was read
│   └── DownloadError         a file could not be fetched, or is not the requested file
└── RecordError     one row   one picture failed at a stage; becomes an error row, never stops a job

Broken invariants of bulkinfer are AssertionErrors. Nothing else is raised on purpose.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator


class BulkinferError(Exception):
    """Base of all errors; the message is a sentence for the user."""

    exit_code = 1


class UsageError(BulkinferError):
    """The command, its flags or the files they name are wrong; nothing was started."""

    exit_code = 2


class AbsentError(UsageError):
    """Neither packages nor hardware of a provider are on this host, so that nobody expects `auto` to choose it."""


class RunError(BulkinferError):
    """The work could not be done or finished."""


class LockedError(RunError):
    """Another launcher owns the results folder."""


class DamagedLockError(LockedError):
    """A lock file does not say who owns it."""


class ForeignError(RunError):
    """A part in a results folder belongs to another job."""


class DamagedError(RunError):
    """A file of bulkinfer is damaged. The reader of the file does not know what to do about it: advising() adds that."""


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """Turn a DamagedError in the block into a RunError that ends with `advice`."""
    try:
        yield
    except DamagedError as error:
        raise RunError(f"{error}: {advice}") from None


@contextlib.contextmanager
def renaming(path: str | os.PathLike[str], shown: str) -> Iterator[None]:
    """Let errors of bulkinfer in the block name `shown` in place of `path`, which no user has given."""
    try:
        yield
    except BulkinferError as error:
        error.args = (str(error).replace(os.fspath(path), shown),)
        raise


class UnreadableError(RunError):
    """A manifest could not be read for lack of memory or threads; it may be sound or damaged."""


class PictureError(RunError):
    """A picture of a data set for training cannot be used. The caller knows how to go on without it, and adds that."""


class RankLostError(RunError):
    """Another rank of a training run has ended, or does not answer. `advice` says how to go on."""

    def __init__(self, advice: str = "") -> None:
        super().__init__(f"another rank has ended, or has not answered for half an hour{advice}")
        self.advice = advice


class ShapeError(RunError):
    """A run of a network gave an output of another shape than its graph declares: its size depends on the pictures."""


class StoreError(RunError):
    """A store of objects, such as a bucket, cannot be used: it is not there, refuses the credentials, or does not answer."""


class AbsentStoreError(StoreError):
    """There is no such bucket: the command, or a list, has a wrong name."""

    exit_code = 2


class ObjectError(RunError):
    """One object of a store cannot be read or written, while others perhaps can."""


class AbsentObjectError(ObjectError):
    """The store has no such object."""


class ConflictError(ObjectError):
    """A conditional put was refused: the object is there already, or is not the one that was read."""


class DownloadError(RunError):
    """A file could not be fetched, or is not the requested file."""


STAGES = ("read", "decode", "preprocess", "infer")


class RecordError(BulkinferError):
    """One record failed at `stage` (one of STAGES); becomes its error row."""

    def __init__(self, stage: str, message: str) -> None:
        assert stage in STAGES, stage
        super().__init__(message)
        self.stage = stage
        self.message = message


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 300 characters; the name of its class if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def os_error_reason(error: OSError) -> str:
    """Why a file that a user named cannot be used, and what to do if that is a matter of permissions."""
    reason = error.strerror or first_line(error)
    return f"{reason}: change its mode or owner" if error.errno in (errno.EACCES, errno.EPERM) else reason


def os_error_sentence(error: OSError) -> str:
    """An error of the operating system as one printable line: what happened, and the files that it names."""
    what = error.strerror or first_line(error)
    names = [_shown(_known(name)) for name in (error.filename, error.filename2) if name is not None]
    return f"{what}: {' -> '.join(names)}" if names else what


def error_sentence(error: BulkinferError | OSError) -> str:
    """What such an error says, as one line."""
    return os_error_sentence(error) if isinstance(error, OSError) else str(error)


def _known(name: str | bytes | int) -> str | bytes | int:
    """The folder of a temporary file of bulkinfer, whose name means nothing to a user; any other name as it is."""
    if isinstance(name, int):
        return name
    folder, file = os.path.split(os.fsencode(name))
    return (folder or b".") if file.startswith(b"_tmp-") else name


def _shown(name: str | bytes | int) -> str:
    if isinstance(name, int):
        return f"file descriptor {name}"
    return escaped(os.fsencode(name).decode("utf-8", "backslashreplace"))


def escaped(text: str) -> str:
    """The text with line breaks, control characters and other characters that show nothing escaped; names may hold them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
