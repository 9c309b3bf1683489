"""Which folders a launch may write to: decided in one place, before a network is made or a picture is read."""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import AddressPath, address_of, place_path
from bulkinfer.files.own_folder import JOB_FILE, SUFFIX, own_folder, require_outside_results
from bulkinfer.files.user_path import real_path, require_folder_place
from bulkinfer.records.dataset import Dataset
from bulkinfer.results.control_files import control_exists
from bulkinfer.results.log_folder import LAUNCH_FILE, RUN_FILE
from bulkinfer.results.output_store import output_store, require_bucket
from bulkinfer.results.verify import foreign_files
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")


def require_places(config: LaunchConfig) -> None:
    """Raises UsageError if a launch cannot log to --log_path or write to --output, or if its files would be among others there.

    Not allowed as --output: a folder that is or holds the folder of job logs or of models, the log folder of a job, own files
    of bulkinfer, and a folder in the results of a job. `config` is one that with_shard has returned.
    """
    if address_of(config.log_path):
        raise UsageError(f"--log_path {config.log_path}: logs lie on this machine: give a folder; --output may be a bucket")
    if isinstance(output := place_path(config.output), AddressPath):
        _require_prefix(output)
    for name in ("log_path", "output"):
        place = place_path(getattr(config, name))
        if isinstance(place, AddressPath):
            continue
        require_folder_place(place, f"--{name}")
        if getattr(config, name):
            require_outside_results(place, f"--{name}", is_results=name == "output")
    if config.output and config.input == "pictures" and not isinstance(output, AddressPath):
        _refuse_places_of_others(config, output)


def _require_prefix(output: AddressPath) -> None:
    """Raises UsageError if results cannot be written below this address, or it lies among the results of another job."""
    require_bucket(output, "--output")
    if any(part.endswith(SUFFIX) and part.startswith(".") for part in output.parts):
        raise UsageError(f"--output {output}: {SUFFIX} is kept for own files about other results: give another prefix")
    _, _bucket, *parts = output.parts
    for above in list(output.parents)[: len(parts)]:
        if control_exists(own_folder(above) / JOB_FILE):
            raise UsageError(f"--output {output}: {above} holds the results of a job: give a prefix outside of it")


def _refuse_places_of_others(config: LaunchConfig, output: Path) -> None:
    shown, given = printable_path(output), real_path(output)
    for option in ("log_path", "model_path"):
        other = getattr(config, option)
        if other and not address_of(other) and real_path(other).is_relative_to(given.parent if config.shard else given):
            held = f"{printable_path(other)}, the folder of --{option}"
            raise UsageError(f"--output {shown} is or holds {held}: give a folder for the results alone")
    if any((output / name).is_file() for name in (LAUNCH_FILE, RUN_FILE)):
        raise UsageError(f"--output {shown} is the folder of a job's logs: give another folder")
    if own := [name for name in given.parts if name.startswith(".") and name.endswith(SUFFIX)]:
        raise UsageError(f"--output {shown}: {own[0]} is kept for own files about other results: give another folder")


def require_apart_from_pictures(dataset: Dataset | None, output: Path | None) -> None:
    """Raises UsageError if the pictures lie in the output: programs that read the results would read them too.

    A folder for the results below that of the pictures is allowed: a launch leaves it out when it looks for pictures.
    """
    if dataset is None or output is None or isinstance(output, AddressPath) != bool(address_of(dataset.root)):
        return
    root, given = real_path(dataset.root), real_path(output)
    if root.is_relative_to(given):
        shown = root if address_of(root) else dataset.root
        raise UsageError(f"--output {output}: the pictures in {shown} lie in it: give a folder for the results alone")
    if isinstance(output, AddressPath):
        if given.is_relative_to(root) and dataset.partitions[0].manifest.archives:
            raise UsageError(f"--output {output} lies among the archives of {root}: give another prefix")
        return
    if dataset.scan is not None and given.is_relative_to(root) and _holds_pictures(dataset, given.relative_to(root)):
        raise UsageError(f"--output {output} holds pictures of {dataset.root}: give a folder for the results alone")


def _holds_pictures(dataset: Dataset, folder: Path) -> bool:
    """Whether pictures of the data set, or archives of them, lie in a folder that is named relative to its root."""
    prefix, scan = os.fsencode(folder) + b"/", dataset.scan
    assert scan is not None, "asked of a plain folder"
    keys = [picture.key for picture in scan.pictures] or scan.archives
    place = bisect_left(keys, prefix)
    return place < len(keys) and keys[place].startswith(prefix)


def warn_of_foreign_files(output: Path | None) -> None:
    """Log a warning if an output that is not begun yet holds other files, which readers of the results would read too."""
    if output is not None and output_store(output).is_there() and (name := next(foreign_files(output), None)) is not None:
        log.warning(
            f"warning: --output {printable_path(output)} holds other files, such as {printable_path(name)}: programs that read "
            f"the results read them too; give a folder for the results alone"
        )


def refuse_inside_partition(dataset: Dataset | None, folder: Path) -> None:
    """Raises UsageError if results or logs would lie in a partition: those are replaced as a whole by partition_dataset."""
    if dataset is None or dataset.scan is not None:
        return
    for partition in dataset.partitions:
        inside = dataset.root / str(partition.index)
        if real_path(folder).is_relative_to(real_path(inside)):
            raise UsageError(f"{folder} lies in the partition {inside}: give another --output or --log_path")
