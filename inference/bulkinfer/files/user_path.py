"""Paths that a user gives: one sentence for what cannot be a path, or cannot be a folder."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError, os_error_sentence
from bulkinfer.files.addresses import AddressPath, address_of, place_path
from bulkinfer.types import given_place, printable, printable_path, shell_word

_ALIKE = 0.7  # of difflib: a letter or two are wrong
_MOST_NAMES = 5000  # that difflib compares, in about a second; a folder of pictures may hold a million


def user_path(value: Any, name: str) -> Path:
    """`value`, text or an os.PathLike of text, as a path as it is meant: see given_place.

    Raises UsageError that names the argument `name`.
    """
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise UsageError(f"{name} is {value!r}: give a path, as text or a pathlib.Path")
    if "\0" in text:
        raise UsageError(f"{name} is {value!r}: give a path without NUL characters")
    return Path(given_place(text, name))


DATASETS = "datasets"  # the folder of partition_dataset, unless --output names another


def find_data_dir(data_dir: str) -> Path | None:
    """`data_dir`; if it is empty datasets/ if it holds partitions, else $DATA_DIR, else None. The folder need not exist."""
    if not data_dir and (Path(DATASETS) / "dataset.json").exists():
        return Path(DATASETS)
    found = data_dir or given_place(os.environ.get("DATA_DIR", ""), "DATA_DIR")
    return Path(found) if found else None


def real_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path without links, or an address as it is.

    Path.resolve raises RuntimeError at a loop of links, which here is kept as it is.
    """
    place = place_path(path)
    return place if isinstance(place, AddressPath) else Path(os.path.realpath(place))


@contextlib.contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Make a folder for the block. If that fails, the folders that were made here are removed unless they hold something."""
    absent = [place for place in (path, *path.parents) if not place.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in absent:
            with contextlib.suppress(OSError):  # it holds something, or was not made
                place.rmdir()
        raise


def require_utf8(path: Path, option: str) -> None:
    """Raises UsageError if the real path of what `option` names is not UTF-8: onnx and onnxruntime take paths as such text."""
    try:
        os.path.realpath(path).encode()
    except UnicodeEncodeError:
        what = f"{option}: onnxruntime cannot open a path that is not UTF-8, such as {printable_path(os.path.realpath(path))}"
        raise UsageError(f"{what}: give another {option}") from None


def require_folder_place(path: Path, option: str) -> None:
    """Raises UsageError if `path` cannot be a folder that is written to, or made one.

    It is an address; or it, or a folder above it, is a file, or a link to nothing, or its name is too long, or the file system
    is read-only.
    """
    if address := address_of(path):
        raise UsageError(f"{option} {address}: this is written to this machine alone: give a folder")
    try:
        there = next(place for place in (path, *path.parents, Path()) if os.path.lexists(place) or not place.name)
        path.exists()  # raises for names that are too long
    except OSError as error:
        raise UsageError(f"{option}: {os_error_sentence(error)}: give another folder") from None
    if there.is_symlink() and not there.exists():
        link, target = printable(os.fsencode(there)), printable(os.readlink(os.fsencode(there)))
        raise UsageError(f"{option}: {link} is a link to {target}, which does not exist: make that folder, or give another")
    if there.is_dir() and os.statvfs(there).f_flag & os.ST_RDONLY:
        shown = printable_path(path)
        raise UsageError(f"{option} {shown}: {printable_path(there)} is on a read-only file system: give another folder")
    if not there.is_dir():
        shown = printable(os.fsencode(there))
        raise UsageError(f"{option} {printable(os.fsencode(path))}: {shown} is not a folder: give another folder")


def did_you_mean(path: Path, others: Iterable[str] = (), takes_file: Callable[[str], bool] = lambda _name: False) -> str:
    """A question that names what was probably meant by `path`, which is no folder: one beside it with nearly that name.

    Files count where `takes_file` says so of their name. `others` are further names that could be meant. Empty if none is near,
    or there are too many to compare.
    """
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        first = list(islice(entries, _MOST_NAMES + 1))
        if len(first) <= _MOST_NAMES:  # else it depends on the file system which of them are the first ones
            names = [entry.name for entry in first if takes_file(entry.name) or entry.is_dir()]
    if near := _nearest(path.name, [name for name in names if not name.startswith(".") and name != path.name]):
        return f"did you mean {shell_word(path.parent / near)}?"
    near = _nearest(str(path), [*others])
    return f"did you mean {shell_word(near)}?" if near else ""


def _nearest(name: str, others: list[str]) -> str:
    """The most similar of `others`; empty if none is near, or there are more than can be compared at once."""
    near = difflib.get_close_matches(name, others, 1, _ALIKE) if len(others) <= _MOST_NAMES else []
    return near[0] if near else ""


def example_path(folder: Path, pattern: str, otherwise: Path) -> Path:
    """A path to show in a message: the first one in `folder` that fits `pattern`, or `otherwise`."""
    return min(folder.glob(pattern), default=otherwise)


def unused_beside(output: Path) -> Path:
    """A folder that does not exist yet for another job beside the results in `output`: out-2, out-3 and so on."""
    is_default = output.name == "results" and not isinstance(output, AddressPath)
    name = output.parent.name if is_default else output.name  # not in the log folder of a job
    beside = Path() if is_default else output.parent
    return next(place for number in count(2) if not os.path.lexists(place := beside / f"{name}-{number}"))
