"""The files of a data set on this machine: fetched, or the user's own; their checksums are checked."""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.datasets.catalog import SETS, PublishedFile, PublishedSet
from bulkinfer.errors import DownloadError, UsageError
from bulkinfer.files.addresses import has_odd_port, public
from bulkinfer.files.archives import SUFFIXES
from bulkinfer.files.download import ESCAPES, TooLargeError, fetch
from bulkinfer.files.guarded import open_regular

log = logging.getLogger("bulkinfer")

ANY_CHECKSUM = "none"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for: a name in SETS, the folder of data sets, and the flags of the command."""

    name: str
    data_dir: Path
    url: str = ""
    checksum: str = ""
    force: bool = False
    any_size: bool = False

    def __post_init__(self) -> None:
        if self.name not in SETS:
            raise UsageError(f"unknown data set {self.name!r}: get_dataset knows {', '.join(SETS)}")
        if self.checksum and not re.fullmatch(r"none|[0-9a-fA-F]{32}|[0-9a-fA-F]{64}", self.checksum):
            raise UsageError("--checksum needs the 32 hex digits of an md5, the 64 of a sha256, or none")
        if "://" in self.url and not self.url.lower().startswith(("http://", "https://")):
            raise UsageError(f"--url {public(self.url)} is neither an http or https address, nor a file or folder here")
        if self.is_remote and has_odd_port(self.url):
            raise UsageError(f"--url {public(self.url)} is a malformed address: {ESCAPES}")

    @property
    def published(self) -> PublishedSet:
        return SETS[self.name]

    @property
    def is_remote(self) -> bool:
        return "://" in self.url

    @property
    def is_archive(self) -> bool:
        """Whether --url names one archive with the whole set, not a folder or mirror that holds the published files."""
        if self.is_remote:
            return public(self.url).removesuffix("?...").lower().endswith(SUFFIXES)
        return bool(self.url) and not Path(self.url).is_dir()


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file on this machine; `source` is its origin in messages; `is_ours` means that we fetched it and may remove it."""

    path: Path
    source: str
    sha256: str
    is_ours: bool


def get_files(request: Request) -> list[Fetched]:
    """The archive of --url, or the published files from --url or from their hosts; all checksums are checked."""
    published = request.published
    if request.is_archive:
        known = published.files[0].checksums if published.are_archives else ()  # else what is in it is checked
        if not request.is_remote:
            _check_size(request, Path(request.url), None)
            return [checked(request, Path(request.url), request.url, known, is_ours=False)]
        name = public(request.url).removesuffix("?...").rpartition("/")[2]
        return [_from_urls(request, name, [request.url], known, published.most_fetched_bytes(None))]
    if request.checksum not in ("", ANY_CHECKSUM) and len(published.files) > 1:
        raise UsageError(
            f"--checksum is for one file, but {request.name} has {len(published.files)}: give --checksum none, or leave it out"
        )
    if request.url and not request.is_remote:
        return [_from_folder(request, Path(request.url), file) for file in published.files]
    if request.url:
        base = request.url.rstrip("/") + "/"
        return [
            _from_urls(
                request,
                file.name,
                list(dict.fromkeys((base + file.path, base + file.name))),
                file.checksums,
                published.most_fetched_bytes(file),
            )
            for file in published.files
        ]
    return [
        _from_urls(
            request,
            file.name,
            [host + file.path for host in published.hosts],
            file.checksums,
            published.most_fetched_bytes(file),
        )
        for file in published.files
    ]


def _from_folder(request: Request, folder: Path, file: PublishedFile) -> Fetched:
    path = next((folder / name for name in (file.path, file.name) if (folder / name).is_file()), None)
    if path is None:
        raise UsageError(f"--url {folder} holds no {file.name}")
    _check_size(request, path, file)
    return checked(request, path, str(path), file.checksums, is_ours=False)


def _check_size(request: Request, path: Path, file: PublishedFile | None) -> None:
    """Raises UsageError if the user's file is too large to be `file`, or, for None, an archive of the whole set."""
    most_bytes, size_bytes = request.published.most_fetched_bytes(file), path.stat().st_size
    if size_bytes > most_bytes and not request.any_size:
        raise UsageError(
            f"--url {path} has {size_bytes:,} bytes, and {most_bytes:,} are allowed for {request.name} (--any_size takes it)"
        )


def _from_urls(request: Request, name: str, urls: list[str], known: tuple[str, ...], most_bytes: int) -> Fetched:
    """Fetch from the first address that has the file; a partial download is continued. Without --any_size it is bounded."""
    part = request.data_dir / f".{request.name}-{name}.part"
    reasons = []
    for url in urls:
        log.info(f"fetching {public(url)}")
        try:
            fetch(url, part, most_bytes=sys.maxsize if request.any_size else most_bytes, part_note=_note_of(part))
            return checked(request, part, public(url), known, is_ours=True)
        except TooLargeError as error:
            forget(part)
            reasons.append(f"{error} for {request.name} (--any_size takes it)")
        except DownloadError as error:
            reasons.append(str(error))
    raise DownloadError(
        f"{request.name} could not be fetched: {'; '.join(reasons)}; bring {name} here by other means and give it with --url"
    )


def _note_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def forget(part: Path) -> None:
    """Remove a fetched file, or a part of one."""
    part.unlink(missing_ok=True)
    _note_of(part).unlink(missing_ok=True)


def checked(request: Request, path: Path, source: str, known: tuple[str, ...], *, is_ours: bool) -> Fetched:
    """A file with one of the expected checksums. Raises DownloadError for another, and removes it if we fetched it."""
    md5, sha256 = _checksums(path)
    allowed = (request.checksum.lower(),) if request.checksum else known
    if request.checksum != ANY_CHECKSUM and allowed and not {md5, sha256} & set(allowed):
        if is_ours:
            forget(path)
        way_out = "" if request.checksum or not request.url else "; --checksum none accepts it as it is"
        raise DownloadError(
            f"{source} is not the file asked for: its md5 is {md5} and its sha256 {sha256}, expected was {' or '.join(allowed)}"
            f"{way_out}"
        )
    return Fetched(path, source, sha256, is_ours)


def _checksums(path: Path) -> tuple[str, str]:
    """md5 (the published kind) and sha256 of a file, in hex."""
    if not path.is_file():
        raise UsageError(f"--url {path} is not a file")
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with open_regular(path, error=UsageError) as file:
        while block := file.read(_BLOCK_BYTES):
            md5.update(block)
            sha256.update(block)
    return md5.hexdigest(), sha256.hexdigest()
