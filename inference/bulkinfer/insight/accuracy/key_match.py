"""The name in a file of labels that means a key, found for one key after the other: a job may have more keys than memory.

The rules are those of records/sources/match_names.py: the whole path, else the end of the path, else a base name that occurs
once. A name may lack the extension of its file. Nothing is guessed: a name that fits two keys is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from bulkinfer.errors import UsageError
from bulkinfer.records.sources.match_names import in_other_folders, with_slashes
from bulkinfer.types import printable


class KeyMatch:
    """Finds names for keys. `exact` are the names that are keys of the job as they stand: they belong to no other key.

    With `any_folder` a base name that occurs once among the names fits whatever the folders are. Memory: the names.
    """

    def __init__(self, names: Collection[bytes], exact: Collection[bytes], flag: str, *, any_folder: bool) -> None:
        self._names, self._exact, self._flag, self._any_folder = names, exact, flag, any_folder
        self._by_base: defaultdict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)  # base -> name with slashes, name
        for name in names:
            if name not in exact:
                spelled = with_slashes(name)
                self._by_base[spelled.rpartition(b"/")[2]].append((spelled, name))
        self._keys: dict[bytes, bytes] = {}  # the key of each name that has one

    @property
    def num_without_key(self) -> int:
        """How many names no key has had so far."""
        return len(self._names) - len(self._keys) - len(self._exact)

    def find(self, key: bytes) -> bytes | None:
        """The name that means `key`; None if there is none. Raises UsageError, with the flag, if it is not clear."""
        if key in self._exact:
            return key
        for path in (key, _without_extension(key)):
            if near := self._by_base.get(path.rpartition(b"/")[2]):
                if (name := self._nearest(path, near)) is None:
                    return None
                if (other := self._keys.setdefault(name, key)) != key:
                    raise self._unclear(name, other, key)
                return name
        return None

    def _nearest(self, path: bytes, names: list[tuple[bytes, bytes]]) -> bytes | None:
        ends = [name for spelled, name in names if _is_end(spelled, path) or _is_end(path, spelled)]
        if len(ends) > 1:
            raise self._unclear(path, ends[0], ends[1])
        if ends:
            return ends[0]
        spelled, name = names[0]
        return name if len(names) == 1 and (self._any_folder or not in_other_folders(spelled, path)) else None

    def _unclear(self, name: bytes, one: bytes, other: bytes) -> UsageError:
        return UsageError(
            f"{self._flag}: {printable(name)} could be {printable(one)} or {printable(other)}: "
            "give the names in the file of labels as the keys of the rows are written"
        )


def _is_end(end: bytes, path: bytes) -> bool:
    return path == end or path.endswith(b"/" + end)


def _without_extension(path: bytes) -> bytes:
    folder, slash, base = path.rpartition(b"/")
    return folder + slash + (base.rpartition(b".")[0] or base)
