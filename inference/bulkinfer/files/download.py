"""Fetch one file over http or https with the standard library: completely or not at all.

Redirects are followed, except from https to http. Certificates are always checked. An interrupted transfer is resumed if the
server can prove that the file has not changed; otherwise it starts again.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import DamagedError, DownloadError
from bulkinfer.files.addresses import has_odd_port, public
from bulkinfer.files.atomic import naming
from bulkinfer.files.guarded import JSON_BYTES, read_bytes

log = logging.getLogger("bulkinfer")

ATTEMPTS = 5
TIMEOUT_S = 30.0
BLOCK_BYTES = 1 << 20
MOST_BYTES = 1 << 34  # of one file, where nothing more exact is known: more than any published weights have
ESCAPES = "in a user and password write / as %2F, ? as %3F, # as %23 and @ as %40; a port is a number"
_RETRIED_STATUS = {408, 425, 429, 500, 502, 503, 504}


class TooLargeError(DownloadError):
    """The file is larger than it may be; nothing of it is kept."""


class _CutError(Exception):
    """The transfer ended early, or the server asks the client to come back later: another attempt makes sense."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        new = newurl.lower()
        if new.startswith("https://") or (new.startswith("http://") and not req.full_url.lower().startswith("https:")):
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        fp.close()
        reason = "from https to plain http" if new.startswith("http://") else "which is not http"
        raise DownloadError(f"{public(req.full_url)} redirects to {public(newurl)}, {reason}: refused")


@dataclass
class _Transfer:
    """State between attempts: bytes in the file, full size if the server sent it, and the validator of this version."""

    done_bytes: int = 0
    size_bytes: int | None = None
    validator: str = ""
    most_bytes: int = MOST_BYTES
    note: Path | None = None  # where the validator is kept for another process
    address_sha256: str = ""

    def write_note(self) -> None:
        """Write, beside the partial file, what another process needs to continue it."""
        if self.note:
            with naming(self.note):
                self.note.write_text(json.dumps({"address_sha256": self.address_sha256, "validator": self.validator}))


def fetch(url: str, path: Path, *, most_bytes: int = MOST_BYTES, pause_s: float = 0.5, part_note: Path | None = None) -> None:
    """Write the file at `url` to `path`; every new attempt is logged.

    A user and password in the address are sent as Basic authorization, to that host only, and never shown. The pause between
    attempts is `pause_s` seconds, then twice that, and so on. Raises DownloadError with the reason. `path` may then hold a
    part of the file: a later call with the same `part_note` (a file beside it) continues it, if the server can prove that the
    file has not changed. A file of more than `most_bytes` is a TooLargeError, as soon as the server announces or sends it;
    `path` is then empty.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise DownloadError(f"{public(url)} is neither http nor https")
    if has_odd_port(url):
        raise DownloadError(f"{public(url)} is a malformed address: {ESCAPES}")
    opener = urllib.request.build_opener(_Redirects)
    transfer = _begun(url, path, part_note)
    transfer.most_bytes = most_bytes
    path.touch()
    with path.open("r+b") as file:  # a part from an earlier process is removed only when an answer begins
        file.seek(transfer.done_bytes)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _attempt(opener, url, file, transfer)
                return
            except TooLargeError:
                file.truncate(0)
                raise
            except ValueError:  # from urllib: it cannot parse this address, or one that it redirects to
                raise DownloadError(f"{public(url)} is, or redirects to, a malformed address") from None
            except _CutError as cut:
                reason = f"{cut} (attempt {attempt} of {ATTEMPTS})"
                if attempt == ATTEMPTS:
                    raise DownloadError(f"{public(url)}: {reason}") from None
                log.info(f"{public(url)}: {reason}; trying again")
                time.sleep(pause_s * 2 ** (attempt - 1))


def _begun(url: str, path: Path, part_note: Path | None) -> _Transfer:
    """The state that an earlier process left for exactly this address; empty if there is no validator to prove it.

    The last byte is requested again: a server cannot be asked for the rest of a file that is already complete.
    """
    transfer = _Transfer(note=part_note, address_sha256=hashlib.sha256(url.encode()).hexdigest())
    if part_note is None or not path.is_file():
        return transfer
    try:
        kept = json.loads(read_bytes(part_note, JSON_BYTES))
    except (OSError, ValueError, DamagedError):  # the note is missing or damaged: nothing proves what the part belongs to
        return transfer
    is_same = isinstance(kept, dict) and kept.get("address_sha256") == transfer.address_sha256
    if is_same and isinstance(kept.get("validator"), str) and kept["validator"]:
        transfer.validator = kept["validator"]
        transfer.done_bytes = max(path.stat().st_size - 1, 0)
    return transfer


def _request(url: str) -> urllib.request.Request:
    """A request without user and password in its address. Raises ValueError if `url` is not a URL."""
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, _, host = authority.rpartition("@")
    request = urllib.request.Request(f"{scheme}{slashes}{host}{slash}{path}", headers={"User-Agent": "bulkinfer"})
    if user:
        token = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _attempt(opener: urllib.request.OpenerDirector, url: str, file: Any, transfer: _Transfer) -> None:
    """Send one request and append the answer to `file`. Raises _CutError if another attempt makes sense."""
    try:
        request = _request(url)
    except ValueError:
        raise DownloadError(f"{public(url)} is a malformed address: {ESCAPES}") from None
    if transfer.done_bytes and transfer.validator:
        request.add_header("Range", f"bytes={transfer.done_bytes}-")
        request.add_header("If-Range", transfer.validator)  # if the file has changed, the server sends all of it
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            _begin(response, file, transfer)
            _check_size(url, transfer.size_bytes or 0, transfer.most_bytes)
            while block := response.read(BLOCK_BYTES):
                transfer.done_bytes += len(block)
                _check_size(url, transfer.done_bytes, transfer.most_bytes)
                file.write(block)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # our part is longer than the file: start again
            transfer.validator = ""
        reason = " ".join(str(error.reason).split())  # urllib's reason for refused redirects has several lines
        if error.code == 416 or error.code in _RETRIED_STATUS:
            raise _CutError(f"the server answered {error.code} {reason}") from None
        raise DownloadError(f"{public(url)}: the server answered {error.code} {reason}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, (TimeoutError, ConnectionResetError)):
            raise _CutError(str(error.reason) or "timed out") from None
        raise DownloadError(f"{public(url)} cannot be reached ({error.reason})") from None
    except http.client.InvalidURL:
        raise DownloadError(f"{public(url)} is a malformed address: {ESCAPES}") from None
    except (http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _CutError(f"the transfer was interrupted after {transfer.done_bytes:,} bytes ({type(error).__name__})") from None
    if transfer.size_bytes is not None and transfer.done_bytes != transfer.size_bytes:
        raise _CutError(f"the transfer ended after {transfer.done_bytes:,} of {transfer.size_bytes:,} bytes")


def _check_size(url: str, size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise TooLargeError(f"{public(url)} gives {size_bytes:,} bytes or more, and {most_bytes:,} are allowed")


def _begin(response: Any, file: Any, transfer: _Transfer) -> None:
    """Seek `file` to where this answer starts, and note the full size: after our part for a matching 206, else at 0."""
    headers = response.headers
    length = headers.get("Content-Length")
    if length is not None and not length.isdecimal():
        raise _CutError(f"the server's answer is malformed (Content-Length: {length[:40]})")
    answered_range = headers.get("Content-Range", "")
    if response.status == 206 and answered_range.startswith(f"bytes {transfer.done_bytes}-"):
        if length is not None:
            transfer.size_bytes = transfer.done_bytes + int(length)
        return
    file.seek(0)
    file.truncate()
    transfer.done_bytes = 0
    if response.status == 206:
        transfer.validator = ""
        raise _CutError(f"the server answered with another range ({answered_range})")
    transfer.size_bytes = int(length) if length is not None else None
    etag = headers.get("ETag", "")
    # Only a strong ETag, or a date, proves that a later part belongs to the same bytes.
    transfer.validator = etag if etag.startswith('"') else headers.get("Last-Modified", "")
    transfer.write_note()
