"""Compares the pictures of several output directories: those that are ok in more than one output of one kind are doubled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.results.job_file import JobFile
from bulkinfer.results.job_kind import other_kind
from bulkinfer.results.ok_rows import OK_SCHEMA, identities
from bulkinfer.results.verify import NAMED, Verdict, repeated
from bulkinfer.types import printable


class Compared(NamedTuple):
    """How many different pictures are ok in all outputs together, and sentences; `notes` are no faults."""

    num_pictures: int
    notes: list[str]
    faults: list[str]


class _Output(NamedTuple):
    folder: Path
    job: JobFile
    ok_rows: pa.Table  # with OK_SCHEMA


def compare_outputs(folders: Sequence[Path], verdicts: Iterable[Verdict]) -> Compared:
    """Count the pictures that are ok in all outputs, and find those that are ok in more than one output of one kind.

    Two rows are of one picture if key and size are the same; the key alone, if an output does not know sizes. Outputs of other
    networks or settings hold other rows of the same pictures: a note says that they are not compared. The verdicts must have
    been made `with_ok_rows`.
    """
    outputs = [
        _Output(folder, verdict.job, pa.concat_tables([OK_SCHEMA.empty_table(), *(verdict.ok_rows or ())]))
        for folder, verdict in zip(folders, verdicts, strict=True)
    ]
    kinds = _by_kind(outputs)
    notes = [
        f"{kinds[0][0].folder} and {kind[0].folder} {other_kind(kinds[0][0].job, kind[0].job)}: their pictures are not compared"
        for kind in kinds[1:]
    ]
    num_pictures = len(pc.unique(_pictures(outputs)))
    return Compared(num_pictures, notes, [fault for kind in kinds if len(kind) > 1 for fault in _doubled(kind)])


def _by_kind(outputs: Iterable[_Output]) -> list[list[_Output]]:
    """The outputs in groups; each is of one kind with the first of its group."""
    kinds: list[list[_Output]] = []
    for output in outputs:
        kind = next((kind for kind in kinds if not other_kind(kind[0].job, output.job)), None)
        if kind is None:
            kinds.append([output])
        else:
            kind.append(output)
    return kinds


def _pictures(outputs: Iterable[_Output]) -> pa.ChunkedArray:
    """A value for each ok row of the outputs, the same for rows of one picture."""
    rows = pa.concat_tables([output.ok_rows for output in outputs])
    unsized = pc.unique(rows["key"].filter(pc.is_null(rows["size"])))
    known = pc.invert(pc.is_in(rows["key"], value_set=unsized))
    return identities(rows.set_column(1, "size", pc.if_else(known, rows["size"], pa.scalar(None, pa.int64()))))


def _doubled(outputs: Sequence[_Output]) -> Iterator[str]:
    """A fault if pictures are ok in more than one of these outputs, which names some of them."""
    doubled = repeated(pc.value_counts(_pictures(outputs)))
    if not len(doubled):
        return
    homes = [(output.folder, pc.unique(output.ok_rows["key"])) for output in outputs]
    places = []
    for key in [value.rpartition(b"\0")[0] for value in doubled[:NAMED].to_pylist()]:
        where = [str(folder) for folder, there in homes if pc.is_in(pa.scalar(key, pa.large_binary()), value_set=there).as_py()]
        places.append(f"{printable(key)} in {' and '.join(where)}")
    more = f" and {len(doubled) - NAMED} more" if len(doubled) > NAMED else ""
    advice = "leave one of the folders out, or run one again with --overwrite and --skip_done of the others"
    yield f"{len(doubled)} pictures are ok in more than one folder ({'; '.join(places)}{more}): {advice}"
