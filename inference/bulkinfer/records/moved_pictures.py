"""Pictures of a manifest whose archives have changed since it was made: found again in the archives as they are now."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import RunError, UsageError
from bulkinfer.records.archives.archive_index import open_index
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import ARCHIVE_SCHEMA, KEY_COLUMNS, PLACE_COLUMNS, Lines, raw_key_column
from bulkinfer.records.sources.archives import archives_at
from bulkinfer.records.sources.folder import first_names

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True, eq=False)
class MovedLines:
    """Lines with other places: `places` has the columns PLACE_COLUMNS."""

    lines: Lines
    places: pa.Table

    def __len__(self) -> int:
        return len(self.lines)

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        """The lines start..end (exclusive) as tables with these columns of ARCHIVE_SCHEMA."""
        kept = [name for name in columns if name not in PLACE_COLUMNS]
        for table in self.lines.blocks(kept or ["key"], start, end):
            places = self.places.slice(start, len(table))
            start += len(table)
            yield pa.table(
                {name: places[name] if name in PLACE_COLUMNS else table[name] for name in columns},
                pa.schema([ARCHIVE_SCHEMA.field(name) for name in columns]),
            )


def changed_archives(manifest: Manifest) -> list[bytes]:
    """The archives of a manifest that are not as they were when it was made. Raises RunError if one is missing."""
    try:
        now = archives_at(manifest.root, [(archive.path, archive.columns) for archive in manifest.archives])
        return [archive.path for archive, found in zip(manifest.archives, now, strict=True) if found != archive]
    except UsageError as error:
        raise RunError(f"an archive of the data set is missing: {error}") from None


def warn_of_changes(changed: Sequence[bytes]) -> None:
    """Log that pictures of these archives are looked for again."""
    log.warning(
        f"warning: changed since their pictures were listed: {first_names(sorted(set(changed)))}; the pictures are looked for "
        "again, by name"
    )


def found_again(manifest: Manifest) -> Manifest:
    """The same records at the places where their archives hold them now, by their keys.

    A record whose key is gone is looked for where it was: in a TFRecord a damaged record has lost its name. One that is nowhere
    becomes an error row.
    """
    columns = next((archive.columns for archive in manifest.archives if archive.columns), ())
    index = open_index(manifest.root, [archive.path for archive in manifest.archives], columns)
    numbers = {archive.path: number for number, archive in enumerate(index.archives)}
    order = pa.array([numbers[archive.path] for archive in manifest.archives], pa.int32())
    before = _columns(manifest.lines, PLACE_COLUMNS)
    before = before.set_column(0, ARCHIVE_SCHEMA.field("archive"), order.take(before["archive"].combine_chunks()))
    now = _columns(index.lines, PLACE_COLUMNS)
    found = pc.index_in(_keys(manifest.lines), value_set=_keys(index.lines))
    found = pc.coalesce(found, pc.index_in(_as_bytes(before), value_set=_as_bytes(now)))
    places = now.take(found)
    archive = pc.coalesce(places["archive"], before["archive"])
    places = places.set_column(0, ARCHIVE_SCHEMA.field("archive"), archive)
    return replace(manifest, lines=MovedLines(manifest.lines, places), archives=index.archives)


def _columns(lines: Lines, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([ARCHIVE_SCHEMA.field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *lines.blocks(columns, 0, len(lines))]).combine_chunks()


def _keys(lines: Lines) -> pa.Array:
    return _one_chunk(raw_key_column(_columns(lines, KEY_COLUMNS)).cast(pa.large_binary()))


def _as_bytes(places: pa.Table) -> pa.Array:
    """Each place as a value that can be compared."""
    texts = [places[name].cast(pa.string()) for name in PLACE_COLUMNS]
    return _one_chunk(pc.binary_join_element_wise(*texts, " ").cast(pa.large_binary()))


def _one_chunk(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
