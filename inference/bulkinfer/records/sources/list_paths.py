"""The paths of a list file: each line as the key of a record, relative to the folder of the pictures.

Arrow handles the usual lines. Only unusual ones go through Python, one at a time: comments, dots, doubled slashes, absolute
paths of another spelling, and paths as Windows writes them.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import ADDRESS_PATTERN, address_of, public, secret_in, whole_path
from bulkinfer.records.sources.folder import PICTURE_EXTENSIONS
from bulkinfer.types import given_place, printable

LONGEST_PATH = 4095  # bytes
_LONGEST_NAME = 255  # bytes of one component
# A comment, a blank line, an empty component or one of dots, a path of Windows.
_ODD = r"^#|^[ \t]*$|(?:^|/)\.{0,2}(?:/|$)|\\|^[A-Za-z]:/"
# What begins as an address or as a misspelt one.
_AS_ADDRESS = r"(?i)^\s*(?:(?:s3[an]?|gc?s|az(?:ure)?|abfss?|https?|file)(?::|//)|[a-z][a-z0-9+.-]*://)"
_DRIVE = re.compile(rb"[A-Za-z]:/")


@dataclass(frozen=True)
class Place:
    """Resolves the paths of a list: the real `root`, and the prefixes of absolute paths inside it, shortest first.

    `inside` is the prefix of keys in the output folder, if that is below the root. `windows_root` holds the folder of Windows
    that is the root here, once a line has shown it. `kinds` has the first line that names an address, and that of a path.
    """

    path: Path
    root: bytes
    prefixes: tuple[bytes, ...]
    inside: bytes | None
    real_folders: dict[bytes, bytes] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    windows_root: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, data_dir: bytes, output: bytes) -> Place:
        """Raises UsageError if `data_dir` is not a folder."""
        if address := address_of(data_dir):
            root = whole_path(address)
            return cls(path, root, (root + b"/",), None)
        root, output = os.path.realpath(data_dir), os.path.realpath(output)
        if not os.path.isdir(root):
            raise UsageError(f"{printable(root)} is not a folder: give the folder that the paths of the list are relative to")
        real = root.rstrip(b"/") + b"/"
        inside = output[len(real) :] + b"/" if output.startswith(real) else None
        return cls(path, root, spellings(data_dir), inside)

    @property
    def shown(self) -> str:
        return printable(address_of(self.path).encode() or os.fsencode(self.path))

    def keys(self, block: bytes, before: int) -> tuple[pa.BinaryArray, int]:
        """The keys of a block of lines, in order, and its number of lines; `before` lines came before the block."""
        lines = self._with_schemes(pa.array(block.split(b"\n")[:-1], pa.binary()), before)
        keys = lines
        for prefix in (b"./", *self.prefixes):
            begins = pc.starts_with(lines, prefix)
            if pc.any(begins).as_py():
                cut = pc.binary_replace_slice(lines.filter(begins), 0, len(prefix), b"")
                keys = pc.replace_with_mask(keys, begins, cut)
        addresses = self._addresses(keys, before)
        odd = pc.or_(pc.match_substring_regex(keys, _ODD), pc.greater(pc.binary_length(lines), _LONGEST_NAME))
        odd = pc.and_not(odd, addresses)
        if pc.any(odd).as_py():
            numbers = (np.flatnonzero(odd) + before + 1).tolist()
            named = [self._key(line, number) for line, number in zip(lines.filter(odd).to_pylist(), numbers, strict=True)]
            keys = pc.replace_with_mask(keys, odd, pa.array(named, pa.binary()))
        self._refuse_mixed(keys, addresses, before)
        self._refuse_partitions(keys, before)
        return keys.drop_null(), len(lines)

    @property
    def holds_addresses(self) -> bool:
        """Whether the lines so far are whole addresses."""
        return "address" in self.kinds

    def _with_schemes(self, lines: pa.BinaryArray, before: int) -> pa.BinaryArray:
        """The lines with addresses as they are meant. Raises UsageError for what looks like an address and is none."""
        wrong = pc.and_not(pc.match_substring_regex(lines, _AS_ADDRESS), pc.match_substring_regex(lines, f"{ADDRESS_PATTERN}."))
        if not pc.any(wrong).as_py():
            return lines
        numbers = (np.flatnonzero(wrong) + before + 1).tolist()
        given = zip(lines.filter(wrong).to_pylist(), numbers, strict=True)
        meant = [
            os.fsencode(given_place(os.fsdecode(line), f"--list_file: {self.shown} line {number}")) for line, number in given
        ]
        return pc.replace_with_mask(lines, wrong, pa.array(meant, pa.binary()))

    def _addresses(self, keys: pa.BinaryArray, before: int) -> pa.BooleanArray:
        """Which of the lines are addresses. Raises UsageError for one with a password or signature in it, or a blank."""
        found = pc.match_substring_regex(keys, ADDRESS_PATTERN)
        if not pc.any(found).as_py():
            return found
        suspects = pc.and_(found, pc.match_substring_regex(keys, r"[@?\s]"))
        for row in np.flatnonzero(suspects):
            address, number = os.fsdecode(keys[row].as_py()), int(row) + before + 1
            where = f"--list_file: {self.shown} line {number}: {public(address)}"
            if secret := secret_in(address):
                raise UsageError(
                    f"{where} holds {secret}, which would be stored with the rows: give addresses without it; for buckets "
                    "credentials come from the environment"
                )
            if address.startswith("http") and re.search(r"\s", address):
                raise UsageError(f"{where} has a blank in it: put one address on each line, and a blank as %20")
        return found

    def _refuse_mixed(self, keys: pa.BinaryArray, addresses: pa.BooleanArray, before: int) -> None:
        """Raises UsageError if the list names addresses and paths, or some addresses below the root and others."""
        for kind, rows in (("address", addresses), ("path", pc.and_not(pc.is_valid(keys), addresses))):
            if kind not in self.kinds and pc.any(rows).as_py():
                self.kinds[kind] = int(np.flatnonzero(rows)[0]) + before + 1
        if len(self.kinds) > 1 and address_of(self.root):
            raise UsageError(
                f"--list_file: {self.shown} line {self.kinds['address']} is not below {printable(self.root)}: leave out "
                "--data_dir to list whole addresses"
            )
        if len(self.kinds) > 1:
            raise UsageError(
                f"--list_file: {self.shown} names addresses, as in line {self.kinds['address']}, and paths, as in line "
                f"{self.kinds['path']}: make a list of each"
            )

    def _key(self, line: bytes, number: int) -> bytes | None:
        """The key of one line; None for a line to skip."""
        if not line.strip(b" \t") or line.startswith(b"#"):
            return None
        normal = posixpath.normpath(line)
        if b"\\" in line or _DRIVE.match(line):
            normal = self._of_windows(line) or normal
        if normal.startswith(b"/"):
            normal = self._below_root(b"/" + normal.lstrip(b"/"), line, number)
        if normal == b".." or normal.startswith(b"../"):
            raise self._refusal(line, number, f"leads out of {printable(self.root)}")
        if normal == b".":
            raise self._refusal(line, number, "is the folder of the pictures itself")
        too_long = max(map(len, normal.split(b"/"))) > _LONGEST_NAME or len(self.root) + 1 + len(normal) > LONGEST_PATH
        if too_long:
            raise self._refusal(line[:40], number, "... is longer than the longest possible path")
        return normal

    def _of_windows(self, line: bytes) -> bytes:
        """The key of a path of Windows; empty if a file has the literal name, or if none has this one.

        The longest end of an absolute path that is a file shows which folder of Windows is the root here. All absolute ones
        must lie in that folder: nothing is guessed.
        """
        if os.path.lexists(os.path.join(self.root, line)):
            return b""
        normal = posixpath.normpath(line.replace(b"\\", b"/"))
        if not _DRIVE.match(normal) and not line.startswith(b"\\"):
            return normal if os.path.lexists(os.path.join(self.root, normal)) else b""
        for folder in self.windows_root:
            return normal[len(folder) :] if normal.startswith(folder) else b""
        for start in [at for at, byte in enumerate(normal) if byte == ord("/")]:
            if (end := normal[start + 1 :]) and os.path.isfile(os.path.join(self.root, end)):
                self.windows_root.append(normal[: start + 1])
                return end
        return b""

    def _below_root(self, path: bytes, line: bytes, number: int) -> bytes:
        """An absolute path relative to the root, by its spelling, else by the real path of its folder."""
        if (key := key_below(path, self.prefixes, self.real_folders)) is not None:
            return key
        raise self._refusal(line, number, f"is not in {printable(self.root)}: give the folder of all pictures as --data_dir")

    def _refuse_partitions(self, keys: pa.BinaryArray, before: int) -> None:
        if self.inside is None:
            return
        for row in np.flatnonzero(pc.starts_with(keys, self.inside).fill_null(False)):
            key = keys[row].as_py()
            if re.match(rb"[0-9]+(?:/|\Z)", key[len(self.inside) :]):
                raise self._refusal(key, int(row) + before + 1, "lies in a partition: list the pictures themselves")

    def _refusal(self, line: bytes, number: int, why: str) -> UsageError:
        return UsageError(f"--list_file: {self.shown} line {number}: {printable(line)} {why}")


def spellings(data_dir: bytes) -> tuple[bytes, ...]:
    """The prefixes of absolute paths inside `data_dir`, as it is spelled and by its real path, shortest first."""
    return tuple(
        sorted({found.rstrip(b"/") + b"/" for found in (os.path.realpath(data_dir), os.path.abspath(data_dir))}, key=len)
    )


def key_below(path: bytes, prefixes: tuple[bytes, ...], real_folders: dict[bytes, bytes]) -> bytes | None:
    """A normalised absolute path relative to the folder of `prefixes`: by its spelling, else by the real path of its folder.

    None if it is not inside. `real_folders` keeps the real paths of folders for the next call.
    """
    folder, _, name = path.rpartition(b"/")
    if folder not in real_folders:
        real_folders[folder] = os.path.realpath(folder or b"/")
    for spelling in (path, os.path.join(real_folders[folder], name)):
        for prefix in reversed(prefixes):
            if (spelling + b"/").startswith(prefix):
                return spelling[len(prefix) :] or b"."
    return None


def hint(name: bytes, root: bytes) -> str:
    """What is probably wrong with a line that names no file, and what to do; empty if nothing is known."""
    bare = name.strip()
    if bare[:1] in (b'"', b"'"):
        return "remove the quotes"
    words = re.split(rb"[,;\t ]", bare)
    extension = bare.rpartition(b".")[2].lower()
    if len(words) > 1 and (extension not in PICTURE_EXTENSIONS or os.path.isfile(os.path.join(root, words[0]))):
        return "the list seems to have a second column: leave only the paths (--labels takes a table of names and labels)"
    if bare != name:
        return "remove the blanks at the ends of the lines"
    if b"\\" in name or _DRIVE.match(name):
        return "it is a path of Windows: give the folder of the pictures as --data_dir, and paths below it"
    return ""
