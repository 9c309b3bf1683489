"""Which places a job may read: those that the settings list, and what lies below."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from bulkinfer.files.addresses import address_of, public
from bulkinfer.files.user_path import real_path
from bulkinfer.serve.refusals import InvalidError
from bulkinfer.types import printable_path

_ODD = ("?", "#", "\\", "@")  # where an address may mean another place than its beginning says


def require_listed(place: str, option: str, listed: Iterable[str]) -> str:
    """The real path or the address of `place`, which the option names.

    Raises InvalidError unless it is one of the `listed` real paths and addresses, or lies below one, whether it exists or not.
    """
    address = address_of(place)
    if not address and not os.path.isabs(place):
        raise InvalidError(f"{option} {printable_path(place)} is a relative path: give an absolute one, or an address")
    found = address.rstrip("/") if address else str(real_path(place))
    if not any(_is_within(found, one) for one in listed):
        shown = public(address) if address else printable_path(place)
        raise InvalidError(f"{option} {shown} is not in a folder or store that jobs may read here: give one that is")
    return found


def _is_within(place: str, listed: str) -> bool:
    if bool(address_of(place)) != bool(address_of(listed)):
        return False
    if address_of(place):
        rest = place.removeprefix(listed)
        is_below = place.startswith(listed) and (not rest or rest.startswith("/"))
        return is_below and not any(mark in rest for mark in _ODD) and not _goes_up(rest)
    return Path(place).is_relative_to(listed)


def _goes_up(rest: str) -> bool:
    """True if a part of an address is `.` or `..`, also written as %2e: servers may resolve it."""
    plain = unquote(unquote(rest))
    return any(part in (".", "..") for part in plain.replace("\\", "/").split("/"))
