"""get_dataset: from the name of a data set to its finished folder below --data_dir.

The set is found there, or fetched, checked, unpacked, read once and published by one rename.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.datasets import find_reader
from bulkinfer.datasets.catalog import SETS, Layout, PublishedFile, PublishedSet
from bulkinfer.errors import DownloadError, RunError, UsageError
from bulkinfer.files.archives import SUFFIXES, ArchiveError, unpack
from bulkinfer.files.atomic import TEMPORARY_PREFIX, fsync_directory, temporary_owner, temporary_path
from bulkinfer.files.download import fetch, public
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.json_file import write_json

log = logging.getLogger("bulkinfer")

SOURCE_FILE = "source.json"  # in the folder of a set: where its files came from
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

    def __post_init__(self) -> None:
        if self.name not in SETS:
            raise UsageError(f"unknown data set {self.name!r}: get_dataset knows {', '.join(SETS)}")
        if self.checksum and not re.fullmatch(r"none|[0-9a-fA-F]{32}|[0-9a-fA-F]{64}", self.checksum):
            raise UsageError("--checksum needs the 32 hex digits of an md5, the 64 of a sha256, or none")
        if "://" in self.url and not self.url.lower().startswith(("http://", "https://")):
            raise UsageError(f"--url {public(self.url)} is neither an http or https address, nor a file or folder here")

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
class _Fetched:
    """A file on this machine; `source` is its origin in messages; `is_ours` means that we fetched it and may remove it."""

    path: Path
    source: str
    sha256: str
    is_ours: bool


def folder_of(name: str, data_dir: Path) -> Path | None:
    """The finished folder of a set below `data_dir`; None if no folder has all its contents."""
    folders = ((data_dir / layout.folder, layout.contents) for layout in SETS[name].layouts)
    return next((folder for folder, contents in folders if all((folder / item).exists() for item in contents)), None)


def get_dataset(request: Request) -> Path:
    """Make sure that the set lies below the folder of data sets; returns its own folder.

    If several processes ask for it, one fetches and the others wait. Raises UsageError, DownloadError or RunError; nothing is
    published then, and a partial download stays for the next call to continue.
    """
    name, data_dir = request.name, request.data_dir
    if not request.force and (there := folder_of(name, data_dir)):
        log.info(f"{name} is there already: {there} (--force fetches it again)")
        return there
    if request.url and not request.is_remote and not Path(request.url).exists():
        raise UsageError(f"--url {request.url}: no such file or folder")
    data_dir.mkdir(parents=True, exist_ok=True)
    with exclusive(data_dir / f".{name}.lock", lambda: log.info(f"waiting for another process that fetches {name}")):
        if not request.force and (there := folder_of(name, data_dir)):
            log.info(f"{name} is there now: {there}")
            return there
        _check_existing(request)
        _remove_left_over(data_dir)
        with _work_folder(data_dir) as work:
            files = _get_files(request)
            final = _publish(request, work, _lay_out(request, files, work), files)
        for file in files:
            if file.is_ours:
                _forget(file.path)
    return final


def _check_existing(request: Request) -> None:
    for layout in request.published.layouts:
        folder = request.data_dir / layout.folder
        missing = [item for item in layout.contents if not (folder / item).exists()]
        if folder.exists() and missing and not request.force:
            raise UsageError(f"{folder} is there but lacks {', '.join(missing[:5])}: remove it, or let --force replace it")


def _remove_left_over(data_dir: Path) -> None:
    """Remove the work folders of processes that have ended."""
    for path in data_dir.glob(f"{TEMPORARY_PREFIX}*"):
        owner = temporary_owner(path.name)
        if owner and owner.is_gone and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


@contextmanager
def _work_folder(data_dir: Path) -> Iterator[Path]:
    work = temporary_path(data_dir / "work")
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work)


def _get_files(request: Request) -> list[_Fetched]:
    """The archive of --url, or the published files from --url or from their hosts; all checksums are checked."""
    published = request.published
    if request.is_archive:
        known = published.files[0].checksums if published.are_archives else ()  # else what is in it is checked
        if not request.is_remote:
            return [_checked(request, Path(request.url), request.url, known, is_ours=False)]
        name = public(request.url).removesuffix("?...").rpartition("/")[2]
        return [_from_urls(request, name, [request.url], known)]
    if request.checksum not in ("", ANY_CHECKSUM) and len(published.files) > 1:
        raise UsageError(
            f"--checksum is for one file, but {request.name} has {len(published.files)}: give --checksum none, or leave it out"
        )
    if request.url and not request.is_remote:
        return [_from_folder(request, Path(request.url), file) for file in published.files]
    if request.url:
        base = request.url.rstrip("/") + "/"
        return [
            _from_urls(request, file.name, list(dict.fromkeys((base + file.path, base + file.name))), file.checksums)
            for file in published.files
        ]
    return [
        _from_urls(request, file.name, [host + file.path for host in published.hosts], file.checksums)
        for file in published.files
    ]


def _from_folder(request: Request, folder: Path, file: PublishedFile) -> _Fetched:
    path = next((folder / name for name in (file.path, file.name) if (folder / name).is_file()), None)
    if path is None:
        raise UsageError(f"--url {folder} holds no {file.name}")
    return _checked(request, path, str(path), file.checksums, is_ours=False)


def _from_urls(request: Request, name: str, urls: list[str], known: tuple[str, ...]) -> _Fetched:
    """Fetch from the first address that has the file; a partial download is continued."""
    part = request.data_dir / f".{request.name}-{name}.part"
    reasons = []
    for url in urls:
        log.info(f"fetching {public(url)}")
        try:
            fetch(url, part, part_note=_note_of(part))
            return _checked(request, part, public(url), known, is_ours=True)
        except DownloadError as error:
            reasons.append(str(error))
    raise DownloadError(
        f"{request.name} could not be fetched: {'; '.join(reasons)}; bring {name} here by other means and give it with --url"
    )


def _note_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note_of(part).unlink(missing_ok=True)


def _checked(request: Request, path: Path, source: str, known: tuple[str, ...], *, is_ours: bool) -> _Fetched:
    """Raises DownloadError, and removes a file that we fetched, if its checksum is not one of the expected ones."""
    md5, sha256 = _checksums(path)
    allowed = (request.checksum.lower(),) if request.checksum else known
    if request.checksum != ANY_CHECKSUM and allowed and not {md5, sha256} & set(allowed):
        if is_ours:
            _forget(path)
        way_out = "" if request.checksum or not request.url else "; --checksum none accepts it as it is"
        raise DownloadError(
            f"{source} is not the file asked for: its md5 is {md5} and its sha256 {sha256}, expected was {' or '.join(allowed)}"
            f"{way_out}"
        )
    return _Fetched(path, source, sha256, is_ours)


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


def _lay_out(request: Request, files: list[_Fetched], work: Path) -> Layout:
    """Put the contents of the set into <work>/<folder of the layout>; returns the layout."""
    published = request.published
    if not (published.are_archives or request.is_archive):
        layout = published.layouts[0]
        (work / layout.folder).mkdir()
        for file, wanted in zip(files, published.files, strict=True):
            shutil.copyfile(file.path, work / layout.folder / wanted.name)
        return layout
    unpacked = work / "unpacked"
    for number, file in enumerate(files):
        folder = unpacked / str(number)
        folder.mkdir(parents=True)
        try:
            unpack(file.path, folder)
        except ArchiveError as error:
            if file.is_ours:
                _forget(file.path)
            raise ArchiveError(str(error).replace(str(file.path), file.source)) from None
    layout, root = _find_layout(request, unpacked, ", ".join(file.source for file in files))
    (work / layout.folder).mkdir()
    for item in layout.contents:
        (root / item).rename(work / layout.folder / item)
    for item in layout.extras:
        found = next((path for path in sorted(unpacked.rglob(item))), None)
        if found:
            found.rename(work / layout.folder / item)
    if not published.are_archives and not request.checksum:
        for wanted in published.files:
            path = work / layout.folder / wanted.name
            _checked(request, path, f"{wanted.name} in {files[0].source}", wanted.checksums, is_ours=False)
    return layout


def _find_layout(request: Request, unpacked: Path, source: str) -> tuple[Layout, Path]:
    for layout in request.published.layouts:
        for place, folders, names in os.walk(unpacked):
            if set(layout.contents) <= {*folders, *names}:
                return layout, Path(place)
    wanted = " or ".join(", ".join(layout.contents) for layout in request.published.layouts)
    raise RunError(f"{source} does not hold {request.name}: no folder in it has {wanted}")


def _publish(request: Request, work: Path, layout: Layout, files: list[_Fetched]) -> Path:
    """Read the set once, then move it to its place by one rename; the work folder takes what --force replaces."""
    folder, final = work / layout.folder, request.data_dir / layout.folder
    if request.published.reader:
        reader = find_reader(request.published.reader)
        try:
            for split in ("train", "valid"):
                reader.read(work, split)  # its notes are left for its use, under the final path
        except UsageError as error:
            reason = str(error).replace(str(work), files[0].source)
            raise RunError(f"what was fetched is not {request.name}: {reason}") from None
    sources = [{"source": file.source, "sha256": file.sha256, "size_bytes": file.path.stat().st_size} for file in files]
    write_json(folder / SOURCE_FILE, {"name": request.name, "files": sources})
    os.sync()  # all files must be on the disk before the name that says they are complete
    if os.path.lexists(final):
        final.rename(work / "replaced")
    folder.rename(final)
    fsync_directory(request.data_dir)
    return final
