"""The seam over stores of objects: buckets of S3, Google and Azure, and web servers.

An address names a store and, behind it, the key of an object: s3://bucket/folder/1.jpg. Of a web server the whole address is
the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import has_odd_port, public, secret_in

_MOST_STORES = 64  # that stay open in a process
WEB = ("http", "https")

Admit: TypeAlias = Callable[[int], object]  # called with the size in bytes before the content of an object is read


class Found(NamedTuple):
    """What a store says of an object: its size in bytes, the time of its last change in ns, and a tag of its content.

    Another content has another time, also within one second, but for web servers: there the time is 0 if it is not known.
    """

    size_bytes: int
    mtime_ns: int
    tag: str


class Listed(NamedTuple):
    """An object of a listing: its key, its size in bytes, the time of its last change in ns, and a tag of its content."""

    key: str
    size_bytes: int
    mtime_ns: int
    tag: str = ""


class Store(Protocol):
    """A bucket, or the web. Any number of threads may use it.

    Errors that pass, such as 503 and a lost connection, are tried again with growing pauses. Everything raises ObjectError or
    AbsentObjectError for one object, and StoreError where the store itself cannot be used.
    """

    def get(self, key: str, most_bytes: int, admit: Admit) -> bytes:
        """The content of an object. Raises ObjectError if it has more than `most_bytes`."""

    def get_range(self, key: str, offset: int, count: int) -> tuple[bytes, Found]:
        """`count` bytes (at least 1) from `offset` on, fewer at the end of the object, and what is known of the whole."""

    def find(self, key: str) -> Found:
        """What is known of an object."""

    def list(self, prefix: str) -> Iterator[list[Listed]]:
        """The objects whose keys begin with `prefix` and a slash, a page at a time, in the order of the store."""

    def put(self, key: str, data: bytes, *, only_new: bool = False, instead_of: str = "") -> str:
        """Write an object as a whole; returns its tag.

        `only_new` makes no object if there is one, `instead_of` only one in place of that tag: else ConflictError.
        """

    def delete(self, key: str) -> None:
        """Remove an object; without an error if there is none."""


def open_store(address: str) -> tuple[Store, str]:
    """The store of an address, and the key in it (empty for a whole bucket).

    Raises UsageError for an address that holds a password or signature, or that no store has, and for a package or credentials
    that are missing. The network is not used for anything else.
    """
    if secret := secret_in(address):
        raise UsageError(
            f"{public(address)} holds {secret}, which would be stored with the results: give the address without it; "
            "credentials of stores come from the environment"
        )
    scheme, _, rest = address.partition("://")
    name, _, key = rest.partition("/")
    if not name or (scheme in WEB and has_odd_port(address)):
        raise UsageError(f"{public(address)} names no {'server' if scheme in WEB else 'bucket'}: correct the address")
    if scheme in WEB:
        return _open("web", ""), address
    return _open(scheme, name), key


@lru_cache(maxsize=_MOST_STORES)
def _open(scheme: str, name: str) -> Store:
    if scheme == "web":
        from bulkinfer.stores.web import Web

        return Web()
    from bulkinfer.stores.bucket import Bucket

    return Bucket(scheme, name)
