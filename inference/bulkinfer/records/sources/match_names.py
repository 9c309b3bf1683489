"""Names that a file of annotations, or a table of labels, gives to pictures: joined to the files that a scan found.

A name is a path as it was on the machine that wrote it. It finds its file by the whole path, else by the end of the path, else
by a base name that occurs once among the names and once among the files; tables of labels want the same last folder too, where
both have one: train/1.jpg is not val/1.jpg. A backslash separates folders, as on Windows, where
no file has the literal name. Nothing is guessed: a name that fits several files is an error.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from bulkinfer.errors import UsageError
from bulkinfer.records.sources.folder import Picture, Scan
from bulkinfer.types import printable


class Matches(NamedTuple):
    """The picture of each name that has one, and `elsewhere`: names -> the key of a file that lies in another folder."""

    pictures: dict[bytes, Picture]
    elsewhere: dict[bytes, bytes]


def match_names(names: Iterable[bytes], scan: Scan, flag: str, *, any_folder: bool) -> Matches:
    """The picture of each normalised name; names without a file are left out.

    With `any_folder` a base name that occurs once finds its file whatever the folders of the two are. Raises UsageError, which
    begins with `flag`, where a name fits several files, or a file several names.
    """
    names = list(names)
    files = {picture.key: picture for picture in scan.pictures}
    claimed = _literal(names, files, scan.root)
    spellings = {name: with_slashes(name) for name in names if name not in claimed}
    owners: dict[bytes, bytes] = {}
    elsewhere: dict[bytes, bytes] = {}
    free: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for key in files.keys() - {picture.key for picture in claimed.values()}:
        free[_base(key)].append(key)
    bases = Counter(_base(spellings.get(name, name)) for name in names)
    for name, spelled in spellings.items():
        candidates = free[_base(spelled)]
        found = spelled if spelled in candidates else _by_end_of_path(spelled, candidates, flag)
        if found is None and len(candidates) == bases[_base(spelled)] == 1:
            found = candidates[0]
            if not any_folder and in_other_folders(spelled, found):
                elsewhere[name] = found
                continue
        if found is None:
            continue
        if found in owners:
            raise _ambiguous(found, sorted([owners[found], name]), flag)
        owners[found] = name
        claimed[name] = files[found]
    return Matches(claimed, elsewhere)


def in_other_folders(name: bytes, key: bytes) -> bool:
    """Whether both lie in a folder, and the two folders have other names."""
    folders = [path.rpartition(b"/")[0] for path in (name, key)]
    return all(folders) and _base(folders[0]) != _base(folders[1])


def with_slashes(name: bytes) -> bytes:
    """A path as Windows writes it as a relative one with slashes: `sub\\a.jpg` is sub/a.jpg, `C:\\img\\a.jpg` is C:/img/a.jpg.

    A path that would lead out of its folder stays as it is.
    """
    if b"\\" not in name:
        return name
    normal = posixpath.normpath(name.replace(b"\\", b"/")).lstrip(b"/")
    return name if leads_out(normal) else normal


def leads_out(normal: bytes) -> bool:
    """Whether a normalised path is not one of a file below the folder that it is relative to."""
    return b"\0" in normal or normal.startswith((b"/", b"../")) or normal in (b"", b".", b"..")


def _literal(names: Iterable[bytes], files: dict[bytes, Picture], root: bytes) -> dict[bytes, Picture]:
    """The names that are paths of files, also of files that the scan does not count as pictures."""
    claimed = {}
    for name in names:
        if name in files:
            claimed[name] = files[name]
        elif os.path.isfile(path := os.path.join(root, name)):
            claimed[name] = Picture(name, os.stat(path).st_size)
    return claimed


def _base(name: bytes) -> bytes:
    return name.rpartition(b"/")[2]


def _by_end_of_path(name: bytes, keys: list[bytes], flag: str) -> bytes | None:
    found = [key for key in keys if key.endswith(b"/" + name) or name.endswith(b"/" + key)]
    if len(found) > 1:
        raise _ambiguous(name, sorted(found), flag)
    return found[0] if found else None


def _ambiguous(name: bytes, others: list[bytes], flag: str) -> UsageError:
    return UsageError(
        f"{flag}: {printable(name)} could be {printable(others[0])} or {printable(others[1])}: "
        "give as --data_dir the folder that the names are relative to"
    )
