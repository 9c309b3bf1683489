"""How a picture gets into a partition: symbolic link, hard link or copy, and the next way where one is not possible."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress

# For each mode the ways that are tried in turn. A file that cannot be copied (no permission, unreadable sector) gets a
# symbolic link, so that it becomes an error row instead of stopping everything.
WAYS = {"symlink": ("symlink", "hardlink", "copy"), "hardlink": ("hardlink", "copy", "symlink"), "copy": ("copy", "symlink")}
_NEXT_WAY = {
    *(errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES),
    *(errno.EIO, errno.ENOENT),
}
_COARSEST_MTIME_NS = 2 * 10**9  # of FAT


class Linker:
    """Puts pictures of `source` in place under one mode; `fallbacks` says, once each, which way was not possible."""

    def __init__(self, source: bytes, mode: str) -> None:
        self.mode = mode
        self.fallbacks: list[str] = []
        self._source = source
        self._ways = WAYS[mode]
        self._real_directories: dict[bytes, bytes] = {}

    def target(self, key: bytes) -> bytes:
        """The absolute path of the picture, without symbolic links."""
        directory, _, name = key.rpartition(b"/")
        real = self._real_directories.get(directory)
        if real is None:
            real = self._real_directories[directory] = os.path.realpath(os.path.join(self._source, directory))
        path = os.path.join(real, name)
        return os.path.realpath(path) if os.path.islink(path) else path

    def put(self, key: bytes, destination: bytes, *, is_missing: bool) -> str:
        """Make `destination`, which must not exist; returns the way it went.

        A missing picture gets a symbolic link that leads nowhere: reading it says what is wrong.
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
        told = f"{_NOUN[way]} not possible ({error.strerror}): {_NOUN[after]} instead"
        if told not in self.fallbacks:
            self.fallbacks.append(told)

    def way_of(self, key: bytes, destination: bytes, *, is_missing: bool) -> str | None:
        """The way in which `destination` holds the picture already; None if it does not, or not in a way of this mode."""
        target = self.target(key)
        try:
            is_link = os.readlink(destination) == target
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTDIR):  # not a link, or below something that is not a folder
                raise
            return None if is_missing or error.errno == errno.ENOTDIR else _way_of_file(target, destination, self._ways)
        if not is_link or is_missing or self.mode == "symlink":
            return "symlink" if is_link else None
        return None if os.access(target, os.R_OK) else "symlink"  # it could be copied by now


def _way_of_file(target: bytes, destination: bytes, ways: tuple[str, ...]) -> str | None:
    try:
        ours, theirs = os.lstat(destination), os.stat(target)
    except OSError:  # the picture has gone or is closed to us: put() will tell
        return None
    if not stat.S_ISREG(ours.st_mode):
        return None
    if os.path.samestat(ours, theirs):
        return "hardlink" if "hardlink" in ways else None
    same = ours.st_size == theirs.st_size and abs(ours.st_mtime_ns - theirs.st_mtime_ns) <= _COARSEST_MTIME_NS
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
