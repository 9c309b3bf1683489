"""What partition_dataset splits: the pictures of a folder, a list, COCO annotations, or archives; with their labels."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bulkinfer.config import PACKED, PartitionConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of, whole_path
from bulkinfer.records.archives.archive_dataset import is_archive_file, open_archives, refuse_columns, wanted_columns
from bulkinfer.records.data_dir import data_dir_or_environment
from bulkinfer.records.dataset import no_pictures, no_stored_pictures, warn_of_archives, with_labels
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.place import ADDRESSES, is_stored
from bulkinfer.records.sources.coco import (
    Annotations,
    EntriesByName,
    Matched,
    labels_of_categories,
    match_images,
    read_annotations,
)
from bulkinfer.records.sources.folder import Picture, Scan, counted, first_names, scan_folder
from bulkinfer.records.sources.labels import ANNOTATIONS, find_labels, label_lines
from bulkinfer.records.sources.list_file import Listing, read_list
from bulkinfer.records.sources.list_paths import hint
from bulkinfer.records.sources.list_table import is_table
from bulkinfer.records.sources.stored_folder import list_stored
from bulkinfer.types import Archive, key_text, printable, printable_path

log = logging.getLogger("bulkinfer")

_COMMAND_TO_TYPE = "partition_dataset --partitions 8"


def log_lines(lines: Iterable[str]) -> None:
    """Log each of the lines."""
    for line in lines:
        log.info(line)


class Found(NamedTuple):
    """The content of the partitions: entries and their sizes in order, keys without a file, and facts for dataset.json.

    `unread` are the lines about folders and archives that could not be read. With `archives` the pictures lie in those, and
    entries are lines of ARCHIVE_SCHEMA.
    """

    root: bytes
    entries: Any
    sizes_bytes: Any
    missing: list[bytes]
    unread: list[str]
    facts: dict[str, Any]
    archives: tuple[Archive, ...] = ()


def find_records(config: PartitionConfig, data_dir: bytes) -> Found:
    """The records of `config`, whose pictures are in `data_dir`. Raises UsageError if there are none, or a name is wrong."""
    if config.list_file:
        return _from_list(config, data_dir)
    if address := address_of(data_dir):
        return _from_store(config, data_dir, address)
    return _from_archives(config, data_dir, None) if is_archive_file(os.fsdecode(data_dir)) else _from_folder(config, data_dir)


def data_dir_of(config: PartitionConfig) -> str:
    """The folder of the pictures: --data_dir, else that of the list, else $DATA_DIR."""
    if config.list_file and not config.data_dir and not os.environ.get("DATA_DIR"):
        return os.path.dirname(os.fsdecode(whole_path(config.list_file)))
    return data_dir_or_environment(config.data_dir, _COMMAND_TO_TYPE)


def _from_folder(config: PartitionConfig, data_dir: bytes) -> Found:
    annotations = read_annotations(Path(config.annotations), data_dir) if config.annotations else None
    scan = scan_folder(data_dir, exclude=os.fsencode(config.output), include_hidden=config.include_hidden)
    if scan.archives and not scan.pictures and annotations is None:
        return _from_archives(config, data_dir, scan)
    refuse_columns(wanted_columns(config.image_column, config.label_column), scan.shown_root)
    log_lines(scan.summary())
    if scan.pictures:
        warn_of_archives(scan)
    if annotations is not None:
        return _from_annotations(config, scan, annotations)
    if not scan.pictures:
        raise UsageError(f"{no_pictures(scan)}: give a folder of pictures")
    label_of, about_labels = _labels(config, scan)
    missing = [picture.key for picture in scan.pictures if picture.size_bytes is None]
    sizes = (picture.size_bytes for picture in scan.pictures)
    facts = _facts(config, scan.root, _about(scan, len(scan.pictures)) | about_labels)
    return Found(scan.root, EntriesByName(scan.pictures, label_of), sizes, missing, scan.unreadable_lines(), facts)


def _from_annotations(config: PartitionConfig, scan: Scan, annotations: Annotations) -> Found:
    """The images of annotations, with what a scan found of them."""
    matched = match_images(annotations.images, scan)
    if len(matched.missing) == len(matched.entries):
        first = f"; the first is '{printable(annotations.images[0].name)}'" if annotations.images else ""
        raise UsageError(f"--annotations: none of its {len(matched.entries):,} images is in {scan.shown_root}{first}")
    log_lines(_annotation_lines(matched, annotations))
    entries, about_labels = _labelled(config, scan, matched.entries, annotations)
    about = {"sha256": annotations.sha256, "missing": len(matched.missing), "extra": len(matched.extra)}
    if annotations.category_texts:
        about["category_ids"] = annotations.category_texts
    facts = _facts(config, scan.root, {**_about(scan, len(scan.pictures)), "annotations": about, **about_labels})
    sizes = (entry.size_bytes for entry in entries)
    return Found(scan.root, entries, sizes, matched.missing, scan.unreadable_lines(), facts)


def _about(scan: Scan, num_pictures: int) -> dict[str, Any]:
    """What was found, for dataset.json."""
    return {
        "found": num_pictures,
        "ignored": scan.ignored,
        "not_pictures": dict(sorted(scan.not_pictures.items())),
        "unreadable": len(scan.unreadable),
    }


def _from_store(config: PartitionConfig, data_dir: bytes, address: str) -> Found:
    if config.mode not in PACKED:
        _require_manifests(config, address)
    annotations = read_annotations(Path(config.annotations), data_dir) if config.annotations else None
    if is_archive_file(address):
        return _from_archives(config, data_dir, None)
    stored = list_stored(address, include_hidden=config.include_hidden)
    if stored.scan.archives and not len(stored.lines) and annotations is None:
        return _from_archives(config, data_dir, stored.scan)
    log_lines(stored.scan.summary())
    if not len(stored.lines):
        raise no_stored_pictures(stored.scan)
    warn_of_archives(stored.scan)
    if annotations is not None:
        return _from_annotations(config, stored.with_names(), annotations)
    lines, about_labels = stored.lines, dict[str, Any]()
    if config.labels:
        lines, labels = with_labels(stored, config.labels)
        log_lines(labels.lines)
        about_labels = {"labels": labels.facts}
    facts = _facts(config, stored.root, _about(stored.scan, len(lines)) | about_labels)
    return Found(stored.root, lines, lines.sizes_bytes(), [], stored.scan.unreadable_lines(), facts)


def _require_manifests(config: PartitionConfig, address: str) -> None:
    """Raises UsageError if partitions of pictures in a store are to hold more than their names, or archives have no sizes."""
    if config.mode not in (PartitionConfig.mode, "manifest"):
        raise UsageError(f"--mode {config.mode} is for pictures on this machine, and these lie in {address}: leave it out")


def _from_archives(config: PartitionConfig, data_dir: bytes, folder: Scan | None) -> Found:
    if config.mode not in (PartitionConfig.mode, "manifest", *PACKED):
        raise UsageError(f"--mode {config.mode} is for pictures in files of their own, and these lie in archives: leave it out")
    columns = wanted_columns(config.image_column, config.label_column)
    opened = open_archives(Path(os.fsdecode(data_dir)), folder, labels=config.labels, columns=columns)
    log_lines(opened.scan.summary())
    about = {"found": len(opened.lines), "archives": len(opened.archives), "unreadable": len(opened.scan.unreadable)}
    facts = _facts(config, opened.root, about | opened.facts)
    unread = opened.scan.unreadable_lines()
    return Found(opened.root, opened.lines, opened.lines.sizes_bytes(), [], unread, facts, opened.archives)


def _labels(config: PartitionConfig, scan: Scan) -> tuple[Callable[[bytes], int | None] | None, dict[str, Any]]:
    """The label of a picture by its key, and facts for dataset.json; without --labels neither."""
    if not config.labels:
        return None, {}
    labels = find_labels(config.labels, scan)
    log_lines(labels.lines)
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


def _from_list(config: PartitionConfig, data_dir: bytes) -> Found:
    columns = (config.image_column, config.label_column)
    if not is_table(config.list_file):
        refuse_columns(wanted_columns(*columns), printable_path(config.list_file))
    listing = read_list(Path(config.list_file), data_dir, os.fsencode(config.output), columns)
    if is_stored(listing.root):
        _check_addresses(config, listing)
    elif config.mode != "manifest" or config.balance == "bytes":
        listing = listing.with_sizes()
        if len(listing.missing) == len(listing):
            raise UsageError(f"--list_file: none of its {len(listing):,} paths is {_no_file(listing.missing[0], listing.root)}")
    log_lines(listing.summary())
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
    elif listing.labels is not None:
        log_lines(label_lines(len(listing), int((listing.labels < 0).sum()), len(listing.classes)))
        about_labels = {"labels": {"from": "list", "classes": listing.classes}}
    missing = None if listing.sizes_bytes is None else len(listing.missing)
    about = {"sha256": listing.sha256, "repeated": listing.num_repeated, "missing": missing}
    facts = _facts(config, listing.root, {"found": len(listing), "list_file": about, **about_labels})
    return Found(listing.root, listing, listing.known_sizes(), listing.missing, [], facts)


def _check_addresses(config: PartitionConfig, listing: Listing) -> None:
    """Raises UsageError for options that a list of addresses does not allow."""
    shown = listing.shown_root
    _require_manifests(config, shown)
    if config.balance == "bytes":
        raise UsageError(f"--balance bytes needs sizes, and a list of pictures in {shown} has none: leave it out")
    if listing.root == ADDRESSES and config.data_dir:
        raise UsageError(f"--data_dir {config.data_dir} is a folder, and the list names whole addresses: leave it out")


def _no_file(name: bytes, root: bytes) -> str:
    """The end of a sentence about paths that name no file: an example, and what is probably wrong with it."""
    advice = hint(name, root)
    where = "an object that is there" if is_stored(root) else f"a file in {printable(root)}"
    return f"{where}; the first is '{printable(name)}'{advice and ': '}{advice}"


def _facts(config: PartitionConfig, root: bytes, found: dict[str, Any]) -> dict[str, Any]:
    """The fields of dataset.json beside the partitions. Equal input gives equal facts: they contain no times."""
    return {
        "source": "a list of addresses" if root == ADDRESSES else key_text(root),
        "source_bytes": None if root == ADDRESSES or key_text(root).encode() == root else root.hex(),
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
