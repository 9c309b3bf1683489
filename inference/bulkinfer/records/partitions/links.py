"""How a picture gets into a partition: symbolic link, hard link or copy, with a fallback where one way is not possible."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from bulkinfer.errors import RunError
from bulkinfer.types import printable

# For each mode, the ways that are tried in turn. A file that cannot be copied (no permission, unreadable sector) gets a
# symbolic link, so that it becomes an error row and the command does not fail.
WAYS = {"symlink": ("symlink", "hardlink", "copy"), "hardlink": ("hardlink", "copy", "symlink"), "copy": ("copy", "symlink")}
_NEXT_WAY = {
    *(errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES),
    *(errno.EIO, errno.ENOENT),
}
_COARSEST_MTIME_NS = 2 * 10**9  # of FAT


class Place(NamedTuple):
    """A picture and its path `name` within a partition. A missing picture gets a dangling link."""

    key: bytes
    name: bytes
    is_missing: bool


class Linker:
    """Links or copies pictures of `source` into partitions; `fallbacks` lists, once each, the ways that were not possible."""

    def __init__(self, source: bytes, mode: str) -> None:
        self.mode = mode
        self.fallbacks: list[str] = []
        self._source = source
        self._ways = WAYS[mode]
        self._real_directories: dict[bytes, bytes] = {}

    def fill(self, partition: bytes, places: Iterable[Place], ways: Counter[str]) -> None:
        """Put all pictures into a new partition and count in `ways` how each one got there."""
        made = {b""}
        for key, name, is_missing in places:
            try:
                _make_folder(partition, name, made)
                ways[self.put(key, os.path.join(partition, name), is_missing=is_missing)] += 1
            except OSError as error:
                _refuse_unless_missing(error, name, is_missing)
                ways["none"] += 1

    def repair(self, partition: bytes, places: Iterable[Place], ways: Counter[str], temporary: bytes) -> int:
        """Check every link or copy of a partition and make those again that are missing or point elsewhere.

        Returns how many were made again. `temporary` is an unused path on the same file system.
        """
        repaired, made = 0, {b""}
        for key, name, is_missing in places:
            destination = os.path.join(partition, name)
            try:
                way = self.way_of(key, destination, is_missing=is_missing)
                if way is None and is_missing and os.path.isdir(destination):
                    way = "none"
                if way is None:
                    _make_folder(partition, name, made)
                    way = self.put(key, temporary, is_missing=is_missing)
                    os.rename(temporary, destination)
                    repaired += 1
            except OSError as error:
                _refuse_unless_missing(error, name, is_missing)
                way = "none"
            ways[way] += 1
        return repaired

    def target(self, key: bytes) -> bytes:
        """The absolute path of the picture, without symbolic links."""
        directory, _, name = key.rpartition(b"/")
        real = self._real_directories.get(directory)
        if real is None:
            real = self._real_directories[directory] = os.path.realpath(os.path.join(self._source, directory))
        path = os.path.join(real, name)
        return os.path.realpath(path) if os.path.islink(path) else path

    def put(self, key: bytes, destination: bytes, *, is_missing: bool) -> str:
        """Create `destination`, which must not exist; returns the way that was used.

        A missing picture gets a dangling symbolic link: reading it later reports what is wrong.
        """
        target = self.target(key)
        if is_missing:
            os.symlink(target, destination)
            return "symlink"
        for way in self._ways[:-1]:
            try:
                _PUT[way](target, destination)
                return way
            except OSError as error:
                if error.errno not in _NEXT_WAY:
                    raise
                self._fall_back(way, error)
        _PUT[self._ways[-1]](target, destination)
        return self._ways[-1]

    def _fall_back(self, way: str, error: OSError) -> None:
        after = self._ways[self._ways.index(way) + 1]
        sentence = f"{_NOUN[way]} not possible ({error.strerror}): {_NOUN[after]} instead"
        if sentence not in self.fallbacks:
            self.fallbacks.append(sentence)

    def way_of(self, key: bytes, destination: bytes, *, is_missing: bool) -> str | None:
        """The way in which `destination` already holds the picture; None if it does not, or in a way that this mode forbids."""
        target = self.target(key)
        try:
            is_link = os.readlink(destination) == target
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTDIR):  # not a link, or its parent is not a folder
                raise
            return None if is_missing or error.errno == errno.ENOTDIR else _way_of_file(target, destination, self._ways)
        if not is_link or is_missing or self.mode == "symlink":
            return "symlink" if is_link else None
        return None if os.access(target, os.R_OK) else "symlink"  # it has become readable, so it can be copied now


def belongs_to(source: bytes, name: bytes, path: bytes) -> bool:
    """True if `path` is a link into `source`, or `source` has a file or folder of the same kind under `name`."""
    if os.path.islink(path):
        return os.readlink(path).startswith(source + b"/") or os.path.lexists(os.path.join(source, name))
    original = os.path.join(source, name)
    return os.path.isdir(original) if os.path.isdir(path) else os.path.isfile(original)


def _make_folder(partition: bytes, name: bytes, made: set[bytes]) -> None:
    """Make the folder that `name` lies in. os.makedirs calls itself for each folder above: too often for a path of 1,000."""
    folder, absent = name.rpartition(b"/")[0], list[bytes]()
    while folder not in made:
        absent.append(folder)
        folder = folder.rpartition(b"/")[0]
    for folder in reversed(absent):
        path = os.path.join(partition, folder)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        made.add(folder)


def _refuse_unless_missing(error: OSError, name: bytes, is_missing: bool) -> None:
    """Raise `error` unless it is that of a missing picture whose name is taken by a folder, or is none that a file can have.

    Reading the record fails either way.
    """
    if error.errno == errno.ENAMETOOLONG and not is_missing:
        raise RunError(
            f"the path of {printable(name)} in a partition is too long: give a shorter --output, or --mode manifest"
        ) from None
    if not is_missing or error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG):
        raise error


def _way_of_file(target: bytes, destination: bytes, ways: tuple[str, ...]) -> str | None:
    try:
        found, wanted = os.lstat(destination), os.stat(target)
    except OSError:  # the picture is gone or not readable: put() reports it
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    if os.path.samestat(found, wanted):
        return "hardlink" if "hardlink" in ways else None
    same = found.st_size == wanted.st_size and abs(found.st_mtime_ns - wanted.st_mtime_ns) <= _COARSEST_MTIME_NS
    return "copy" if same else None


def _copy(target: bytes, destination: bytes) -> None:
    try:
        shutil.copy2(target, destination)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(destination)
        raise


_PUT = {
    "symlink": lambda target, destination: os.symlink(target, destination),
    "hardlink": lambda target, destination: os.link(target, destination),
    "copy": _copy,
}
_NOUN = {"symlink": "symbolic links", "hardlink": "hard links", "copy": "copies"}
