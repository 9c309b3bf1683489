"""Make partitions from a folder or a list: find the pictures, split them, publish the partitions, log what was done."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from bulkinfer.config import PACKED, PartitionConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.own_folder import require_outside_results
from bulkinfer.files.user_path import require_folder_place
from bulkinfer.host.number_text import size_text
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.records.find_records import data_dir_of, find_records, log_lines
from bulkinfer.records.layout import carries_dataset, carries_manifest
from bulkinfer.records.partitions.pack_archives import pack_archives
from bulkinfer.records.partitions.partition import Published, publish_partitions
from bulkinfer.records.partitions.split import even_bytes_split, even_split
from bulkinfer.records.place import is_stored
from bulkinfer.records.sources.folder import counted, first_names
from bulkinfer.records.sources.list_paths import hint
from bulkinfer.types import printable

log = logging.getLogger("bulkinfer")

_WAY_NOUNS = {"symlink": "symbolic link", "hardlink": "hard link", "copy": "copy"}
_FEW = 16  # partitions that get a line each
_MOST = 100_000  # partitions: each is a folder and a manifest of its own


def partition_dataset(
    data_dir: str | os.PathLike[str] = "",
    *,
    partitions: int = PartitionConfig.partitions,
    output: str | os.PathLike[str] = PartitionConfig.output,
    mode: str = PartitionConfig.mode,
    balance: str = PartitionConfig.balance,
    annotations: str | os.PathLike[str] = "",
    list_file: str | os.PathLike[str] = "",
    labels: str | os.PathLike[str] = "",
    image_column: str = "",
    label_column: str = "",
    include_hidden: bool = False,
    archive_mb: int = PartitionConfig.archive_mb,
) -> Dataset:
    """Split the pictures in the folder `data_dir` into `partitions` folders below `output`, and open the result.

    The parameters are the flags of the command partition_dataset, with the same defaults. A second call with the same
    arguments changes nothing. Folders that cannot be read and files that are missing are logged as warnings.
    Raises UsageError, before anything is written, for wrong arguments or if there are no pictures, RunError if the partitions
    cannot be written.
    """
    config = PartitionConfig(
        data_dir=os.fspath(data_dir),
        partitions=partitions,
        output=os.fspath(output),
        mode=mode,
        balance=balance,
        annotations=os.fspath(annotations),
        list_file=os.fspath(list_file),
        labels=os.fspath(labels),
        image_column=image_column,
        label_column=label_column,
        include_hidden=include_hidden,
        archive_mb=archive_mb,
    )
    make_partitions(config)
    return open_dataset(Path(config.output))


def make_partitions(config: PartitionConfig) -> bool:
    """Make the partitions of `config`; True if every folder could be read and no file is missing.

    Raises the same errors as partition_dataset.
    """
    if config.partitions > _MOST:
        raise UsageError(f"--partitions {config.partitions} is too many: give at most {_MOST:,}, one for each device")
    data_dir = os.fsencode(data_dir_of(config))
    output = Path(config.output)
    require_folder_place(output, "--output")
    require_outside_results(output, "--output")
    check_places(data_dir, os.fsencode(output))
    found = find_records(config, data_dir)
    if config.mode in PACKED:
        return pack_archives(config, found)
    if config.balance == "bytes":
        intervals = even_bytes_split(found.sizes_bytes, config.partitions)
    else:
        intervals = even_split(len(found.entries), config.partitions)
    mode = "manifest" if found.archives or is_stored(found.root) else config.mode
    published = publish_partitions(output, found.root, mode, found.entries, intervals, found.facts, found.archives)
    log_lines(_published_lines(config, published))
    for line in [*found.unread, *_missing_lines(found.missing, found.root)]:
        log.warning(line)
    return not found.unread and not found.missing


def check_places(source: bytes, output: bytes) -> None:
    """Raises UsageError, before anything is read or written, for a source that is an output, or a folder into itself."""
    if address_of(source):
        return
    source, output = os.path.realpath(source), os.path.realpath(output)
    if source == output:
        raise UsageError(f"--output {printable(output)} is the folder of the pictures itself: give another")
    if carries_dataset(source) or carries_manifest(source):
        raise UsageError(f"{printable(source)} was made by partition_dataset: give the folder of the pictures themselves")
    inside = re.match(re.escape(output) + rb"/([0-9]+)(?:/|\Z)", source)
    if inside:
        raise UsageError(
            f"{printable(source)} lies where partition {inside[1].decode()} of {printable(output)} belongs: "
            "give another --output"
        )


def _missing_lines(missing: list[bytes], root: bytes) -> list[str]:
    if not missing:
        return []
    line = f"missing or not accessible, will be error rows: {counted(len(missing), 'picture')}: {first_names(missing)}"
    advice = next(((name, found) for name in missing[:_FEW] if (found := hint(name, root))), None)
    return [line] if advice is None else [line, f"'{printable(advice[0])}' is no file: {advice[1]}"]


def _published_lines(config: PartitionConfig, published: Published) -> list[str]:
    sizes, smallest = _sizes_text(config, published), min(published.sizes)
    ways = ", ".join(_way_text(way, count) for way, count in sorted(published.ways.items()))
    folder = config.output.rstrip("/") or "/"
    last = f" to {folder}/{len(published.sizes) - 1}" if len(published.sizes) > 1 else ""
    lines = [f"note: {fallback}" for fallback in published.fallbacks]
    lines.append(f"{folder}/0{last}: {sizes}{' each' if last else ''} ({ways or 'manifests only'})")
    if config.balance == "bytes" and 1 < len(published.sizes) <= _FEW:
        pairs = enumerate(zip(published.sizes, published.sizes_bytes, strict=True))
        lines += [f"{folder}/{index}: {counted(number, 'picture')}, {size_text(size)}" for index, (number, size) in pairs]
    if not smallest:
        empty = counted(published.sizes.count(0), "partition")
        lines.append(f"note: {empty} without pictures: there are more partitions than pictures")
    done = [f"wrote {counted(len(published.written), 'partition')}"] if published.written else []
    done += [f"repaired {counted(published.repaired, 'link')}"] if published.repaired else []
    done += [f"removed {counted(len(published.removed), 'partition')} no longer wanted"] if published.removed else []
    lines.append(", ".join(done) or "nothing to do: all partitions exist already")
    if published.left_over:
        lines.append(f"note: left alone, perhaps not from partition_dataset: {first_names(published.left_over)}")
    return lines


def _way_text(way: str, count: int) -> str:
    return counted(count, _WAY_NOUNS[way]) if way in _WAY_NOUNS else f"{count:,} without a file"


def _sizes_text(config: PartitionConfig, published: Published) -> str:
    """The number of pictures in a partition and, with --balance bytes, its size."""
    largest, smallest = max(published.sizes), min(published.sizes)
    between = "or" if largest == smallest + 1 else "to"
    text = counted(largest, "picture") if largest == smallest else f"{smallest:,} {between} {counted(largest, 'picture')}"
    if config.balance == "bytes":
        most, least = size_text(max(published.sizes_bytes)), size_text(min(published.sizes_bytes))
        text += f", {most}" if most == least else f", {least} to {most}"
    return text
