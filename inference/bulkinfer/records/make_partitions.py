"""Make partitions from a folder or a list: find the pictures, split them, publish the partitions, log what was done."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bulkinfer.config import PartitionConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.own_folder import require_outside_results
from bulkinfer.files.user_path import require_folder_place
from bulkinfer.records.data_dir import data_dir_or_environment
from bulkinfer.records.dataset import Dataset, no_pictures, open_dataset
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.partition import Published, check_places, publish_partitions
from bulkinfer.records.sources.coco import (
    Annotations,
    EntriesByName,
    Matched,
    labels_of_categories,
    match_images,
    read_annotations,
)
from bulkinfer.records.sources.folder import Picture, Scan, counted, first_names, scan_folder
from bulkinfer.records.sources.labels import ANNOTATIONS, find_labels
from bulkinfer.records.sources.list_file import read_list
from bulkinfer.records.sources.list_paths import hint
from bulkinfer.records.split import even_bytes_split, even_split
from bulkinfer.types import key_text, printable

log = logging.getLogger("bulkinfer")

_COMMAND_TO_TYPE = "partition_dataset --data_dir photos --partitions 8"
_WAY_NOUNS = {"symlink": "symbolic links", "hardlink": "hard links", "copy": "copies", "none": "without a file"}
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
    include_hidden: bool = False,
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
        include_hidden=include_hidden,
    )
    make_partitions(config)
    return open_dataset(Path(config.output))


def make_partitions(config: PartitionConfig) -> bool:
    """Make the partitions of `config`; True if every folder could be read and no file is missing.

    Raises the same errors as partition_dataset.
    """
    if config.partitions > _MOST:
        raise UsageError(f"--partitions {config.partitions} is too many: give at most {_MOST:,}, one for each device")
    data_dir = os.fsencode(_data_dir(config))
    output = Path(config.output)
    require_folder_place(output, "--output")
    require_outside_results(output, "--output")
    check_places(data_dir, os.fsencode(output))
    found = _from_list(config, data_dir) if config.list_file else _from_folder(config, data_dir)
    if config.balance == "bytes":
        intervals = even_bytes_split(found.sizes_bytes, config.partitions)
    else:
        intervals = even_split(len(found.entries), config.partitions)
    published = publish_partitions(output, found.root, config.mode, found.entries, intervals, found.facts)
    _log_lines(_published_lines(config, published))
    for line in [*found.unread, *_missing_lines(found.missing, found.root)]:
        log.warning(line)
    return not found.unread and not found.missing


def _log_lines(lines: Iterable[str]) -> None:
    for line in lines:
        log.info(line)


class _Input(NamedTuple):
    """The content of the partitions: entries and their sizes in order, keys without a file, and facts for dataset.json.

    `unread` are the lines about folders that could not be read.
    """

    root: bytes
    entries: Any
    sizes_bytes: Any
    missing: list[bytes]
    unread: list[str]
    facts: dict[str, Any]


def _data_dir(config: PartitionConfig) -> str:
    if config.list_file and not config.data_dir and not os.environ.get("DATA_DIR"):
        return os.path.dirname(os.path.abspath(config.list_file))
    return data_dir_or_environment(config.data_dir, _COMMAND_TO_TYPE)


def _from_folder(config: PartitionConfig, data_dir: bytes) -> _Input:
    annotations = read_annotations(Path(config.annotations), data_dir) if config.annotations else None
    scan = scan_folder(data_dir, exclude=os.fsencode(config.output), include_hidden=config.include_hidden)
    _log_lines(scan.summary())
    found = {
        "found": len(scan.pictures),
        "ignored": scan.ignored,
        "not_pictures": dict(sorted(scan.not_pictures.items())),
        "unreadable": len(scan.unreadable),
    }
    if annotations is None:
        if not scan.pictures:
            raise UsageError(f"{no_pictures(scan)}: give a folder of pictures")
        label_of, about_labels = _labels(config, scan)
        missing = [picture.key for picture in scan.pictures if picture.size_bytes is None]
        sizes = (picture.size_bytes for picture in scan.pictures)
        facts = _facts(config, scan.root, found | about_labels)
        return _Input(scan.root, EntriesByName(scan.pictures, label_of), sizes, missing, scan.unreadable_lines(), facts)
    matched = match_images(annotations.images, scan)
    if len(matched.missing) == len(matched.entries):
        first = f"; the first is '{printable(annotations.images[0].name)}'" if annotations.images else ""
        raise UsageError(f"--annotations: none of its {len(matched.entries):,} images is in {scan.shown_root}{first}")
    _log_lines(_annotation_lines(matched, annotations))
    entries, about_labels = _labelled(config, scan, matched.entries, annotations)
    about = {"sha256": annotations.sha256, "missing": len(matched.missing), "extra": len(matched.extra)}
    if annotations.category_texts:
        about["category_ids"] = annotations.category_texts
    facts = _facts(config, scan.root, {**found, "annotations": about, **about_labels})
    sizes = (entry.size_bytes for entry in entries)
    return _Input(scan.root, entries, sizes, matched.missing, scan.unreadable_lines(), facts)


def _labels(config: PartitionConfig, scan: Scan) -> tuple[Callable[[bytes], int | None] | None, dict[str, Any]]:
    """The label of a picture by its key, and facts for dataset.json; without --labels neither."""
    if not config.labels:
        return None, {}
    labels = find_labels(config.labels, scan)
    _log_lines(labels.lines)
    return labels.of, {"labels": labels.facts}


def _labelled(
    config: PartitionConfig, scan: Scan, entries: list[Entry], annotations: Annotations
) -> tuple[list[Entry], dict[str, Any]]:
    """Entries of annotations with the labels of --labels, and facts for dataset.json."""
    if config.labels == ANNOTATIONS:
        labelled, facts = labels_of_categories(annotations, entries)
        known = sum(entry.label is not None for entry in labelled)
        log.info(f"labels of {counted(known, 'picture')} with exactly one category; {len(labelled) - known:,} without a label")
        return labelled, {"labels": facts}
    label_of, facts = _labels(config, scan)
    return [entry._replace(label=label_of(entry.key)) for entry in entries] if label_of else entries, facts


def _from_list(config: PartitionConfig, data_dir: bytes) -> _Input:
    listing = read_list(Path(config.list_file), data_dir, os.fsencode(config.output))
    if config.mode != "manifest" or config.balance == "bytes":
        listing = listing.with_sizes()
        if len(listing.missing) == len(listing):
            raise UsageError(f"--list_file: none of its {len(listing):,} paths is {_no_file(listing.missing[0], listing.root)}")
    _log_lines(listing.summary())
    if listing.sizes_bytes is None and (absent := listing.absent_at_start()):
        log.warning(
            f"warning: the first of its {len(listing):,} paths are missing; none is {_no_file(absent[0], listing.root)}"
        )
    if config.include_hidden:
        log.info("note: --include_hidden changes nothing: every path of the list is used")
    about_labels: dict[str, Any] = {}
    if config.labels:
        pictures = [Picture(key, None) for key in listing.all_keys()]
        label_of, about_labels = _labels(config, Scan(listing.root, pictures))
        assert label_of is not None, "--labels is given"
        listing = listing.with_labels(label_of)
    missing = None if listing.sizes_bytes is None else len(listing.missing)
    about = {"sha256": listing.sha256, "repeated": listing.num_repeated, "missing": missing}
    facts = _facts(config, listing.root, {"found": len(listing), "list_file": about, **about_labels})
    return _Input(listing.root, listing, listing.known_sizes(), listing.missing, [], facts)


def _no_file(name: bytes, root: bytes) -> str:
    """The end of a sentence about paths that name no file: an example, and what is probably wrong with it."""
    advice = hint(name, root)
    return f"a file in {printable(root)}; the first is '{printable(name)}'{advice and ': '}{advice}"


def _facts(config: PartitionConfig, root: bytes, found: dict[str, Any]) -> dict[str, Any]:
    """The fields of dataset.json beside the partitions. Equal input gives equal facts: they contain no times."""
    return {
        "source": key_text(root),
        "source_bytes": None if key_text(root).encode() == root else root.hex(),
        "include_hidden": config.include_hidden,
        "balance": config.balance,
        "annotations": None,
        "list_file": None,
        **found,
    }


def _annotation_lines(matched: Matched, annotations: Annotations) -> list[str]:
    lines = [f"annotations name {counted(len(matched.entries), 'image')}"]
    if matched.extra:
        number = counted(len(matched.extra), "file")
        lines.append(f"left out {number} that the annotations do not name: {first_names(matched.extra)}")
    if annotations.num_repeated:
        number = counted(annotations.num_repeated, "image")
        lines.append(f"united {number} with the other images of the same file: one record, with the categories of all")
    if annotations.num_strays:
        lines.append(f"left out {counted(annotations.num_strays, 'annotation')} of images that the annotations do not list")
    if annotations.num_without_category:
        lines.append(f"{counted(annotations.num_without_category, 'annotation')} without a category")
    if number_of := len(annotations.category_texts):
        lines.append(f"the ids of the {number_of:,} categories are no integers: label_ids has their places in dataset.json")
    return lines


def _missing_lines(missing: list[bytes], root: bytes) -> list[str]:
    if not missing:
        return []
    line = f"missing or not accessible, will be error rows: {counted(len(missing), 'picture')}: {first_names(missing)}"
    advice = next(((name, found) for name in missing[:_FEW] if (found := hint(name, root))), None)
    return [line] if advice is None else [line, f"'{printable(advice[0])}' is no file: {advice[1]}"]


def _published_lines(config: PartitionConfig, published: Published) -> list[str]:
    sizes, smallest = _sizes_text(config, published), min(published.sizes)
    ways = ", ".join(f"{count:,} {_WAY_NOUNS[way]}" for way, count in sorted(published.ways.items()))
    folder = config.output.rstrip("/") or "/"
    last = f" to {folder}/{len(published.sizes) - 1}" if len(published.sizes) > 1 else ""
    lines = [f"note: {fallback}" for fallback in published.fallbacks]
    lines.append(f"{folder}/0{last}: {sizes} each ({ways or 'manifests only'})")
    if config.balance == "bytes" and 1 < len(published.sizes) <= _FEW:
        pairs = enumerate(zip(published.sizes, published.sizes_bytes, strict=True))
        lines += [f"{folder}/{index}: {counted(number, 'picture')}, {_mb(size)}" for index, (number, size) in pairs]
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


def _sizes_text(config: PartitionConfig, published: Published) -> str:
    """The number of pictures in a partition and, with --balance bytes, its MB."""
    largest, smallest = max(published.sizes), min(published.sizes)
    between = "or" if largest == smallest + 1 else "to"
    text = counted(largest, "picture") if largest == smallest else f"{smallest:,} {between} {counted(largest, 'picture')}"
    if config.balance == "bytes":
        most, least = _mb(max(published.sizes_bytes)), _mb(min(published.sizes_bytes))
        text += f", {most}" if most == least else f", {least} to {most}"
    return text


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
