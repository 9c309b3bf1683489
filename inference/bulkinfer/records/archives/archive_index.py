"""The index of a folder of archives: where each picture lies, with its label, so that none is looked for again.

It is made once, by reading every archive, and kept in the folder itself; where that cannot be written to, in the user's cache.
An archive of another size or time than its entry says is read again, and no other one.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.file_lock import exclusive
from bulkinfer.records.archives.index_file import INDEX_SCHEMA, make_index, open_file
from bulkinfer.records.kept_files import can_be_written, kept_places
from bulkinfer.records.manifest_file import FileLines
from bulkinfer.records.sources.archive_names import INDEX_FILE
from bulkinfer.records.sources.archives import archives_at
from bulkinfer.types import Archive, printable

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True, eq=False)
class ArchiveIndex:
    """The pictures of some archives below the folder `root`, in the order of `archives`, whose paths are relative to it.

    `lines` have the columns of INDEX_SCHEMA; `archive` is a place in `archives`. `left_out` counts what is no picture.
    """

    root: bytes
    archives: tuple[Archive, ...]
    lines: SelectedLines
    left_out: Counter[str]


@dataclass(frozen=True, eq=False)
class SelectedLines:
    """Ranges of the lines of an index, one behind the other; `numbers` has the new number of each of its archives."""

    lines: FileLines
    ranges: list[tuple[int, int]]
    numbers: pa.Int32Array

    def __len__(self) -> int:
        return sum(end - start for start, end in self.ranges)

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        """The lines start..end (exclusive) as tables with these columns, of at most ROWS lines each."""
        starts = list(accumulate((end - start for start, end in self.ranges), initial=0))
        index = bisect_right(starts, start) - 1
        while start < end:
            shift = self.ranges[index][0] - starts[index]
            stop = min(end, starts[index + 1])
            for table in self.lines.blocks(columns, start + shift, stop + shift):
                if "archive" in columns:
                    place = columns.index("archive")
                    table = table.set_column(place, INDEX_SCHEMA.field("archive"), self.numbers.take(table["archive"]))
                yield table
            start, index = stop, index + 1


def open_index(root: bytes, names: Sequence[bytes], columns: tuple[str, ...] = ()) -> ArchiveIndex:
    """The index of these archives below `root`, read or made. Archives are in the order of their names.

    `columns` are those of the tables among them, see Archive.

    Raises UsageError for an archive that cannot be read, and for an index that can be kept nowhere.
    """
    wanted = archives_at(root, [(name, columns) for name in sorted(names)])
    places = kept_places(root, INDEX_FILE)
    for path in places:
        if (found := _read(root, path, wanted)) is not None:
            return found
    writable = [place for place in places if can_be_written(place)]
    if not writable:
        places_tried = f"neither there nor in {places[-1].parent}: make one of the two writable"
        if len(places) == 1:
            places_tried = f"not in {places[-1].parent}: make that writable"
        raise UsageError(
            f"the index of the archives in {printable(root)} can be kept {places_tried}, or name another folder for "
            "caches with XDG_CACHE_HOME"
        )
    path = writable[0]
    with exclusive(path.with_suffix(".lock"), lambda: log.info(f"waiting for another process that makes {path}")):
        remove_stale_temporaries(path.parent)
        if (found := _read(root, path, wanted)) is None:  # another process may have made it meanwhile
            make_index(root, path, wanted)
            found = _read(root, path, wanted)
    assert found is not None, "it has just been made"
    return found


def _read(root: bytes, path: Path, wanted: Sequence[Archive]) -> ArchiveIndex | None:
    """The index in a file, if that knows all of these archives as they are now."""
    if (opened := open_file(path)) is None:
        return None
    lines, known = opened
    starts = list(accumulate((each.count for each in known), initial=0))
    by_archive = {each.archive: number for number, each in enumerate(known)}
    if not all(archive in by_archive for archive in wanted):
        return None
    found = [by_archive[archive] for archive in wanted]
    numbers = np.full(len(known), -1, np.int32)
    numbers[found] = np.arange(len(found), dtype=np.int32)
    ranges: list[tuple[int, int]] = []
    for number in found:
        start, end = starts[number], starts[number + 1]
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], end
        elif start < end:
            ranges.append((start, end))
    left_out = sum((known[number].left_out for number in found), Counter[str]())
    return ArchiveIndex(root, tuple(wanted), SelectedLines(lines, ranges, pa.array(numbers)), left_out)
