"""get_dataset: from the name of a data set to its finished folder below --data_dir.

The set is found there, or fetched, checked, unpacked, read once and published by one rename.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bulkinfer.datasets import find_reader
from bulkinfer.datasets.catalog import SETS, Layout
from bulkinfer.datasets.fetched_files import Fetched, Request, checked, forget, get_files
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.addresses import public
from bulkinfer.files.archives import ArchiveError, TooLargeError, unpack
from bulkinfer.files.atomic import TEMPORARY_PREFIX, fsync_directory, temporary_owner, temporary_path
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.json_file import write_json
from bulkinfer.files.user_path import require_folder_place

__all__ = ["Request", "folder_of", "get_dataset"]

log = logging.getLogger("bulkinfer")

SOURCE_FILE = "source.json"  # in the folder of a set: where its files came from
_MOST_RATIO = 20  # of an archive's bytes, unpacked to packed: pictures hardly shrink, annotations to a fifth
_SMALL_BYTES = 64 << 20  # which any archive may unpack to


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
        raise UsageError(f"--url {public(request.url)}: no such file or folder")
    require_folder_place(data_dir, "--data_dir")
    data_dir.mkdir(parents=True, exist_ok=True)
    with exclusive(data_dir / f".{name}.lock", lambda: log.info(f"waiting for another process that fetches {name}")):
        if not request.force and (there := folder_of(name, data_dir)):
            log.info(f"{name} is there now: {there}")
            return there
        _check_existing(request)
        _remove_left_over(data_dir)
        with _work_folder(data_dir) as work:
            files = get_files(request)
            final = _publish(request, work, _lay_out(request, files, work), files)
        for file in files:
            if file.is_ours:
                forget(file.path)
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
    try:  # a signal may come at any time
        work.mkdir()
        yield work
    finally:
        if work.exists():
            shutil.rmtree(work)


def _lay_out(request: Request, files: list[Fetched], work: Path) -> Layout:
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
        _unpack(request, file, folder)
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
            checked(request, path, f"{wanted.name} in {files[0].source}", wanted.checksums, is_ours=False)
    return layout


def _unpack(request: Request, file: Fetched, folder: Path) -> None:
    """Unpack one archive. Raises ArchiveError; without --any_size also if it unpacks to more than the set can have."""
    most_bytes = min(request.published.most_unpacked_bytes, _MOST_RATIO * file.path.stat().st_size + _SMALL_BYTES)
    try:
        unpack(file.path, folder, most_bytes=None if request.any_size else most_bytes)
    except ArchiveError as error:
        if file.is_ours:
            forget(file.path)
        advice = (
            f" for {request.name} from an archive of its size (--any_size takes it)" if isinstance(error, TooLargeError) else ""
        )
        raise type(error)(str(error).replace(str(file.path), file.source) + advice) from None


def _find_layout(request: Request, unpacked: Path, source: str) -> tuple[Layout, Path]:
    for layout in request.published.layouts:
        for place, folders, names in os.walk(unpacked):
            if set(layout.contents) <= {*folders, *names}:
                return layout, Path(place)
    wanted = " or ".join(", ".join(layout.contents) for layout in request.published.layouts)
    raise RunError(f"{source} does not hold {request.name}: no folder in it has {wanted}")


def _publish(request: Request, work: Path, layout: Layout, files: list[Fetched]) -> Path:
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
