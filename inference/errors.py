"""The errors of bulkinfer.

BulkinferError                one sentence for the user: what, where, what to do
├── UsageError      exit 2    the command, its flags or what they name is wrong; nothing was started
├── RunError        exit 1    the job could not be done or finished
│   ├── LockedError           another launcher owns the output directory
│   └── DownloadError         a file could not be fetched, or is not the file that was asked for
└── RecordError     one row   one picture failed at a stage; becomes an error row, never stops a job

Broken invariants of our own are AssertionErrors. Nothing else is raised on purpose.
"""

from __future__ import annotations

import os


class BulkinferError(Exception):
    """Base of all errors that carry a sentence for the user."""

    exit_code = 1


class UsageError(BulkinferError):
    """The command, its flags or the files they name are wrong; nothing was started."""

    exit_code = 2


class RunError(BulkinferError):
    """The work could not be done or finished."""


class LockedError(RunError):
    """Another launcher owns the output directory."""


class DownloadError(RunError):
    """A file could not be fetched, or is not the file that was asked for."""


STAGES = ("read", "decode", "preprocess", "infer", "write")


class RecordError(BulkinferError):
    """One record failed at `stage` (one of STAGES); becomes its error row."""

    def __init__(self, stage: str, message: str) -> None:
        assert stage in STAGES, stage
        super().__init__(message)
        self.stage = stage
        self.message = message


def os_error_sentence(error: OSError) -> str:
    """An operating system's error for the user: what, and the file it is about where the system names one."""
    what = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return what
    return f"{what}: {os.fsdecode(error.filename)}"
