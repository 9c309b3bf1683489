"""Where the pictures of a command lie: --data_dir, else what the working folder or the environment names."""

from __future__ import annotations

import contextlib
import os
from itertools import islice
from pathlib import Path

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.user_path import find_data_dir
from bulkinfer.records.sources.archive_names import kind_by_name
from bulkinfer.records.sources.folder import PICTURE_EXTENSIONS, extension_of, no_folder
from bulkinfer.types import explained, given_place, shell_word

_MOST_BESIDE = 1000  # entries of the working folder: among more, another one could hold pictures too
_MOST_IN_FOLDER = 100  # entries of each other folder that are read
_MOST_FOLDERS = 10  # in a folder of the working folder that are read
_MOST_ENTRIES = 4000  # that are read in all: each may be a question to a file server


def data_dir_or_environment(data_dir: str, command_to_type: str) -> str:
    """`data_dir`, else $DATA_DIR. Raises UsageError with an example: `command_to_type`, with a folder of pictures."""
    if found := data_dir or given_place(os.environ.get("DATA_DIR", ""), "DATA_DIR"):
        return found
    raise _no_pictures(command_to_type)


def resolve_data_dir(data_dir: str, command_to_type: str) -> Path:
    """The folder or archive that find_data_dir finds for --data_dir, or an address, which is not looked at.

    Raises UsageError if there is none, with an example as data_dir_or_environment has it, or if it is none of these.
    """
    found = find_data_dir(data_dir)
    if found is None:
        raise _no_pictures(command_to_type)
    if address_of(found):
        return found
    if not found.is_dir() and not (kind_by_name(os.fsencode(found)) and found.is_file()):
        raise no_folder(found, "a folder of pictures or of partitions, or an archive")
    return found


def _no_pictures(command_to_type: str) -> UsageError:
    command = f"{command_to_type} --data_dir {shell_word(pictures_here() or 'PHOTOS')}"
    return UsageError(f"no folder of pictures given: use --data_dir or set DATA_DIR, as in: {explained(command)}")


def pictures_here() -> str:
    """The one folder in the working folder that holds pictures, by names of its first files; empty if there is not one.

    Empty too where much would have to be read to know that: the answer is a help, and must not take minutes in a home folder.
    """
    reading, found = _Reading(_MOST_ENTRIES), list[str]()
    beside = reading.entries(".", _MOST_BESIDE + 1)
    if len(beside) > _MOST_BESIDE:
        return ""
    for folder in beside:
        if not folder.name.startswith(".") and folder.is_dir() and reading.has_pictures(folder.path, depth=2):
            found.append(folder.name)
        if len(found) > 1 or not reading.left:
            return ""
    return found[0] if found else ""


class _Reading:
    """The reading of names in folders, up to a number of entries in all: `left` of them are not read yet."""

    def __init__(self, most: int) -> None:
        self.left = most

    def entries(self, folder: str, most: int) -> list[os.DirEntry[str]]:
        """Entries of `folder` by name: all, or `most` of them, or as many as are left. Empty if it cannot be read."""
        first = list[os.DirEntry[str]]()
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            first = sorted(islice(found, min(most, self.left)), key=lambda entry: entry.name)
        self.left -= len(first)
        return first

    def has_pictures(self, folder: str, depth: int) -> bool:
        """True if one of the files of `folder` that are read, or of the first folders in it, has the name of a picture."""
        entries = self.entries(folder, _MOST_IN_FOLDER)
        if any(extension_of(os.fsencode(entry.name)) in PICTURE_EXTENSIONS and entry.is_file() for entry in entries):
            return True
        folders = (entry.path for entry in entries if depth > 1 and entry.is_dir())
        return any(self.has_pictures(inner, depth - 1) for inner in islice(folders, _MOST_FOLDERS))
