"""partition_dataset: find the pictures, split them, publish the partitions, say what was done."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.commands import flags
from inference.config import PartitionConfig, data_dir_or_environment
from inference.errors import UsageError

if TYPE_CHECKING:
    from inference.coco import Annotations, Matched
    from inference.partition import Published
    from inference.scan import Scan

_COMMAND_TO_TYPE = "partition_dataset --data_dir photos --partitions 8"
_WAY_NOUNS = {"symlink": "symbolic links", "hardlink": "hard links", "copy": "copies", "none": "without a file"}


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    return flags.run_command("partition_dataset", PartitionConfig, partition, argv)


def partition(config: PartitionConfig) -> int:
    """Run one partition_dataset. Returns the exit code: 0, or 3 if a folder or file could not be read or is missing."""
    from inference.coco import read_annotations
    from inference.partition import check_places, publish_partitions
    from inference.scan import scan_folder

    data_dir = os.fsencode(data_dir_or_environment(config.data_dir, _COMMAND_TO_TYPE))
    output = Path(config.output)
    check_places(data_dir, os.fsencode(output))
    annotations = read_annotations(Path(config.annotations)) if config.annotations else None
    scan = scan_folder(data_dir, exclude=os.fsencode(output), include_hidden=config.include_hidden)
    _tell(scan.summary())
    entries, missing, facts = _entries(config, scan, annotations)
    published = publish_partitions(output, scan.root, config.mode, entries, config.partitions, facts)
    _tell(_published_lines(config, published))
    _tell([*scan.unreadable_lines(), *_missing_lines(missing)], sys.stderr)
    _tell([f"next: infer_launch --data_dir {shlex.quote(config.output)}"])
    return 3 if scan.unreadable or missing else 0


def _tell(lines: Iterable[str], stream: Any = None) -> None:
    for line in lines:
        print(line, file=stream, flush=True)


def _entries(config: PartitionConfig, scan: Scan, annotations: Annotations | None) -> tuple[Any, list[bytes], dict[str, Any]]:
    """What the partitions will hold, which of it has no file, and the facts for dataset.json."""
    from inference.coco import EntriesByName, match_images
    from inference.manifest import no_pictures

    if annotations is None:
        if not scan.pictures:
            raise UsageError(f"{no_pictures(scan)}: give a folder of pictures")
        missing = [picture.key for picture in scan.pictures if picture.size_bytes is None]
        return EntriesByName(scan.pictures), missing, _facts(config, scan)
    matched = match_images(annotations.images, scan)
    if len(matched.missing) == len(matched.entries):
        raise UsageError(f"--annotations: none of its {len(matched.entries):,} images is in {scan.shown_root}")
    _tell(_annotation_lines(matched, annotations.num_strays))
    about = {"sha256": annotations.sha256, "missing": len(matched.missing), "extra": len(matched.extra)}
    return matched.entries, matched.missing, {**_facts(config, scan), "annotations": about}


def _facts(config: PartitionConfig, scan: Scan) -> dict[str, Any]:
    """The facts of dataset.json that the partitions do not tell; the same for the same input (no times)."""
    from inference.types import key_text

    return {
        "source": key_text(scan.root),
        "source_bytes": None if key_text(scan.root).encode() == scan.root else scan.root.hex(),
        "include_hidden": config.include_hidden,
        "annotations": None,
        "found": len(scan.pictures),
        "ignored": scan.ignored,
        "not_pictures": dict(sorted(scan.not_pictures.items())),
        "unreadable": len(scan.unreadable),
    }


def _annotation_lines(matched: Matched, num_strays: int) -> list[str]:
    from inference.scan import counted, first_names

    lines = [f"annotations name {counted(len(matched.entries), 'image')}"]
    if matched.extra:
        number = counted(len(matched.extra), "file")
        lines.append(f"left out {number} that the annotations do not name: {first_names(matched.extra)}")
    if num_strays:
        lines.append(f"left out {counted(num_strays, 'annotation')} of images that the annotations do not list")
    return lines


def _missing_lines(missing: list[bytes]) -> list[str]:
    from inference.scan import counted, first_names

    if not missing:
        return []
    return [f"missing or out of reach, will be error rows: {counted(len(missing), 'picture')}: {first_names(missing)}"]


def _published_lines(config: PartitionConfig, published: Published) -> list[str]:
    from inference.scan import counted, first_names

    largest, smallest = published.sizes[0], published.sizes[-1]
    sizes = counted(largest, "picture") if largest == smallest else f"{smallest:,} or {counted(largest, 'picture')}"
    ways = ", ".join(f"{count:,} {_WAY_NOUNS[way]}" for way, count in sorted(published.ways.items()))
    folder = config.output.rstrip("/") or "/"
    last = f" to {folder}/{len(published.sizes) - 1}" if len(published.sizes) > 1 else ""
    lines = [f"note: {told}" for told in published.fallbacks]
    lines.append(f"{folder}/0{last}: {sizes} each ({ways or 'manifests only'})")
    if not smallest:
        empty = counted(published.sizes.count(0), "partition")
        lines.append(f"note: {empty} without pictures: there are more partitions than pictures")
    done = [f"wrote {counted(len(published.written), 'partition')}"] if published.written else []
    done += [f"repaired {counted(published.repaired, 'link')}"] if published.repaired else []
    done += [f"removed {counted(len(published.removed), 'partition')} no longer wanted"] if published.removed else []
    lines.append(", ".join(done) or "nothing to do: all partitions are there already")
    if published.left_over:
        lines.append(f"note: left alone, not known to be ours: {first_names(published.left_over)}")
    return lines
