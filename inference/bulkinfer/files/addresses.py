"""Addresses of files on the web and in stores, and what of one may be shown, since it may hold a password."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath
from typing import Any, NoReturn
from urllib.parse import parse_qsl

# Two slashes, or one: pathlib.Path takes one away.
_ADDRESS = re.compile(r"(s3|gs|az|https?):/{1,2}(?!/)(.+)", re.DOTALL)
ADDRESS_PATTERN = r"^(?:s3|gs|az|https?)://"
# Names in the query of an address whose values are secrets, or signed by one, in lower case.
_SECRET_NAMES = frozenset([
    "x-amz-signature", "x-amz-credential", "x-amz-security-token", "x-goog-signature", "x-goog-credential", "signature", "sig",
    "awsaccesskeyid", "googleaccessid", "key-pair-id", "token", "access_token", "auth_token", "api_key", "apikey", "password",
])  # fmt: skip
_AUTHORITY_END = re.compile(r"[/?#]")


def public(url: str) -> str:
    """The address without possible secrets: user and password, query and fragment.

    Of an address that may hide a password behind a / ? or #, where no program looks for one, the scheme alone is left; of a
    text that is none, what follows the last @.
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        before, mark, after = url.rpartition("@")
        return f"...{after}" if mark and ":" in before else url
    if _may_hide_password(rest):
        return f"{scheme}://..."
    place, _, _ = url.partition("#")
    place, mark, _ = place.partition("?")
    host, slash, path = place.partition("://")[2].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}{mark and '?...'}"


def has_odd_port(url: str) -> bool:
    """True if what stands where a port belongs is no number: the beginning of a password that holds a / ? or #, for example."""
    authority, _ = _divided(url.partition("://")[2])
    port = authority.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    return bool(port) and not (port.isascii() and port.isdecimal())


def _may_hide_password(rest: str) -> bool:
    authority, tail = _divided(rest)
    if has_odd_port(f"://{rest}"):
        return True
    if "@" in authority and tail.startswith("/"):
        return "@" in re.split("[?#]", tail)[0]  # an @ in a query is none of a user
    before, mark, _ = tail.rpartition("@")
    return bool(mark) and bool({*":@"} & {*authority} or ":" in before)


def _divided(rest: str) -> tuple[str, str]:
    """The authority (user, password, host and port), and what follows it."""
    found = _AUTHORITY_END.search(rest)
    return (rest[: found.start()], rest[found.start() :]) if found else (rest, "")


def address_of(place: str | bytes | os.PathLike[str]) -> str:
    """The address that a text or path is, as in s3://bucket/folder; empty if it is the path of a file of this machine.

    A pathlib.Path of an address has lost one of its slashes, which is put back.
    """
    found = _ADDRESS.fullmatch(os.fsdecode(place))
    return f"{found[1]}://{found[2]}" if found else ""


class AddressPath(PosixPath):
    """The address of an object, or of the objects below it, as a path: it is joined like one, and reads s3://bucket/folder.

    It names nothing on this machine: results/output_store.py knows how to list, read and write there. Whoever asks the file
    system for it has forgotten that results may lie in a bucket.
    """

    def __str__(self) -> str:
        return address_of(super().__str__())

    def __fspath__(self) -> str:
        return str(self)

    @property
    def parent(self) -> AddressPath:
        """The address above; of a bucket the bucket itself, as / is above /."""
        above = super().parent
        return self if len(above.parts) < 2 else AddressPath(above)

    def absolute(self) -> AddressPath:
        """Itself."""
        return self

    def resolve(self, strict: bool = False) -> AddressPath:
        """Itself."""
        del strict
        return self

    def _refuse(self, *_args: Any, **_options: Any) -> NoReturn:
        raise AssertionError(f"{self} is no file of this machine")

    stat = lstat = exists = is_dir = is_file = is_symlink = open = mkdir = iterdir = glob = rglob = _refuse
    unlink = rmdir = rename = replace = touch = _refuse


def place_path(place: str | os.PathLike[str]) -> Path:
    """The path of a folder of this machine, or of an address, which may have lost a slash."""
    return AddressPath(address) if (address := address_of(place)) else Path(place)


def whole_path(place: str | bytes | os.PathLike[str]) -> bytes:
    """An address, or the absolute path of a file; as bytes."""
    address = address_of(place)
    return os.fsencode(address.rstrip("/")) if address else os.path.abspath(os.fsencode(place))


def secret_in(address: str) -> str:
    """What an address holds that must not be stored, for a message; empty if there is nothing."""
    scheme, _, rest = address.partition("://")
    authority, tail = _divided(rest)
    is_web = scheme in ("http", "https")
    if "@" in authority or (is_web and _may_hide_password(rest)):
        return "a user or password"
    if not is_web:  # the rest is the key of an object, whatever it is
        return ""
    query = tail.partition("?")[2].partition("#")[0]
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True) if name.lower() in _SECRET_NAMES]
    return f"a signature or key ({names[0]})" if names else ""
