"""The files of bulkinfer in a results folder and in its own folder: all others belong to somebody else, and stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.own_folder import JOB_FILE, own_folder
from bulkinfer.launch.jobs.changed_pictures import TIMES_FILE
from bulkinfer.results.output_store import output_store
from bulkinfer.results.part_names import STAGING, is_set_aside, part_step


def all_result_files(output: Path) -> dict[Path, str]:
    """The files of bulkinfer in a results folder and in its own folder, each with its kind in words."""
    found = dict[Path, str]()
    for folder in (output, own_folder(output)):
        found |= result_files(folder / STAGING, " of an unfinished retry") | result_files(folder)
    return found


def result_files(folder: Path, where: str = "") -> dict[Path, str]:
    """The files of bulkinfer in a results folder, each with its kind in words; `where` is appended to the kind."""
    found = {}
    for name, entry in sorted(output_store(folder).entries().items()):
        kind = JOB_FILE if name == JOB_FILE else "part" if part_step(name) else ""
        kind = kind or ("part that was set aside" if is_set_aside(name) else "")
        kind = kind or (TIMES_FILE if name == TIMES_FILE else "")
        if kind and (entry.is_link or not entry.is_folder):
            found[folder / name] = kind + where
    return found


def remove_result(path: Path) -> None:
    """Remove a file of an output or its own folder."""
    output_store(path.parent).remove(path.name)


def describe_files(found: dict[Path, str]) -> str:
    """The number of files of each kind, in words."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(found.values()).items()))
    return f"{len(found)} files ({kinds})"


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that bulkinfer made, unless it holds files of somebody else."""
    if isinstance(folder, AddressPath):  # there are no folders
        return
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()
