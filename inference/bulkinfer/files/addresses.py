"""Addresses of files on the web: what of one may be shown, since it may hold a password."""

from __future__ import annotations

import re

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
