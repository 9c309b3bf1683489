"""Objects of web servers, by the package urllib3: an address is asked for exactly as it is written."""

from __future__ import annotations

import email.utils
import re
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

from bulkinfer.errors import AbsentObjectError, ObjectError, UsageError, first_line
from bulkinfer.files.addresses import public
from bulkinfer.host.install_hint import install_command
from bulkinfer.stores.store import Admit, Found, Listed

_T = TypeVar("_T")
_CONNECT_S, _READ_S = 10.0, 20.0
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # statuses of an answer that may be another one soon
_MOST_HOSTS, _MOST_PER_HOST = 256, 128  # whose connections stay open
_LONGEST_PAUSE_S = 10
_PIECE_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # in an address these characters mean something, or stand for themselves


class Web:
    """All web servers; see Store. The key of an object is its address. There are no credentials, and nothing can be written.

    A server that fails costs the objects that it should give, never the job: a list may name many servers.
    Raises UsageError if urllib3 is not installed.
    """

    def __init__(self) -> None:
        try:
            import urllib3
        except ModuleNotFoundError:
            extra = install_command("http")
            raise UsageError(f"http addresses need the package urllib3, which is not installed: {extra}") from None
        self._errors: Any = urllib3.exceptions
        retries = urllib3.Retry(
            6, connect=2, redirect=5, status_forcelist=_PASSING, backoff_factor=0.2, backoff_max=_LONGEST_PAUSE_S,
            backoff_jitter=0.2, retry_after_max=_LONGEST_PAUSE_S,
        )  # fmt: skip
        self._retries = retries
        kept: dict[str, Any] = {
            "num_pools": _MOST_HOSTS,
            "maxsize": _MOST_PER_HOST,
            "timeout": urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
            "headers": {"User-Agent": "bulkinfer"},
        }
        self._direct: Any = urllib3.PoolManager(**kept)
        self._through: Callable[[str], Any] = cache(lambda proxy: urllib3.ProxyManager(proxy, **kept))

    def get(self, key: str, most_bytes: int, admit: Admit) -> bytes:
        """The content of an object, as the server sends it: no encoding is undone."""

        def read(answer: Any) -> bytes:
            size = int(answer.headers.get("Content-Length") or 0)
            if size <= most_bytes:
                admit(size)
                data = _read(answer, most_bytes + 1)
                size = max(size, len(data))
            if size > most_bytes:
                raise ObjectError(f"too large: {size} bytes or more, limit {most_bytes}")
            return data

        return self._ask(key, {}, read)

    def get_range(self, key: str, offset: int, count: int) -> tuple[bytes, Found]:
        """Bytes from `offset` on, and what is known of the whole object."""

        def read(answer: Any) -> tuple[bytes, Found]:
            if answer.status == 416:  # the object ends before
                return b"", Found(0, 0, "")
            if answer.status != 206:
                raise ObjectError("its server gives whole files only, no parts of them")
            data, said = _read(answer, count), _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if said is None or int(said[1]) != offset or len(data) != min(count, int(said[2]) + 1 - offset):
                raise ObjectError("its server gives other parts than it is asked for")
            return data, _found(answer)

        return self._ask(key, {"Range": f"bytes={offset}-{offset + count - 1}"}, read)

    def find(self, key: str) -> Found:
        """What is known of an object. It is asked for its first byte: not every server knows HEAD."""
        return self._ask(key, {"Range": "bytes=0-0"}, _found)

    def list(self, prefix: str) -> Iterator[list[Listed]]:
        """Not possible."""
        raise UsageError(
            f"{public(prefix)}: a web server does not list its files: name them in a --list_file, or give the address of a "
            "single archive"
        )

    def put(self, key: str, data: bytes, *, only_new: bool = False, instead_of: str = "") -> str:
        """Not possible."""
        del data, only_new, instead_of
        _refuse_writing(key)

    def delete(self, key: str) -> None:
        """Not possible."""
        _refuse_writing(key)

    def _ask(self, address: str, headers: dict[str, str], read: Callable[[Any], _T]) -> _T:
        """What `read` makes of the answer. An answer that breaks off is asked for again from the beginning."""
        retries, spelled, errors = self._retries, quote(address, _SAFE), self._errors
        pools = self._pools(spelled)
        try:
            while True:
                answer = pools.request(
                    "GET", spelled, headers={**pools.headers, **headers}, preload_content=False, retries=retries,
                    decode_content=False,
                )  # fmt: skip
                try:
                    self._check(answer)
                    found = read(answer)
                    answer.release_conn()
                    return found
                except (errors.ProtocolError, errors.ReadTimeoutError) as error:
                    retries = retries.increment("GET", spelled, error=error)
                    retries.sleep()
                finally:
                    answer.close()
        except errors.MaxRetryError as error:
            raise ObjectError(_reason(error.reason)) from None
        except errors.HTTPError as error:
            raise ObjectError(_reason(error)) from None

    def _pools(self, address: str) -> Any:
        parts = urlsplit(address)
        proxy = urllib.request.getproxies().get(parts.scheme)
        if proxy is None or urllib.request.proxy_bypass(parts.hostname or ""):
            return self._direct
        return self._through(proxy)

    def _check(self, answer: Any) -> None:
        if answer.status in (404, 410):
            raise AbsentObjectError("object not found")
        if answer.status not in (200, 206, 416):
            raise ObjectError(f"the server answered {answer.status} {answer.reason}")


def _read(answer: Any, most: int) -> bytes:
    """At most `most` bytes, in pieces: one read would first take memory for all of them."""
    pieces, count = list[bytes](), 0
    while count < most and (piece := answer.read(min(_PIECE_BYTES, most - count))):
        pieces.append(piece)
        count += len(piece)
    return b"".join(pieces)


def _found(answer: Any) -> Found:
    whole = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    size = int(whole[3]) if whole else int(answer.headers.get("Content-Length") or 0)
    changed = email.utils.parsedate_to_datetime(answer.headers["Last-Modified"]) if "Last-Modified" in answer.headers else None
    return Found(size, int(changed.timestamp()) * 1_000_000_000 if changed else 0, answer.headers.get("ETag", ""))


def _reason(error: BaseException | None) -> str:
    """Why a request failed, without the address that urllib3 puts into its messages."""
    name = type(error).__name__
    known = {
        "NameResolutionError": "its server has no address: the name is wrong, or there is no network",
        "NewConnectionError": "its server cannot be reached",
        "ConnectTimeoutError": "its server cannot be reached (timed out)",
        "ReadTimeoutError": "its server does not answer (timed out)",
        "ProtocolError": "its server ended the connection",
        "IncompleteRead": "its server ended the connection",
        "SSLError": "the certificate of its server is not valid",
        "LocationParseError": "its address is malformed",
    }
    if name == "ResponseError" and "redirect" in str(error):
        return "its server redirects again and again"
    if name == "ResponseError" and error is not None:
        return f"its server goes on answering with an error ({first_line(error)})"
    return known.get(name, f"it cannot be fetched ({name})")


def _refuse_writing(address: str) -> NoReturn:
    raise UsageError(f"{public(address)}: a web server cannot be written to: give a bucket, as s3://bucket/folder, or a folder")
