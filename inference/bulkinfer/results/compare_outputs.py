"""Compares the pictures of several results folders: those that are ok in more than one output of one kind are doubled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.results.job_kind import differing_fields, effective_identity, kind_key
from bulkinfer.results.ok_rows import OK_SCHEMA, identities
from bulkinfer.results.verify import NAMED, Verdict, name_some, repeated
from bulkinfer.types import printable


class Compared(NamedTuple):
    """How many different pictures are ok in at least one of the outputs, and sentences; `notes` are no faults."""

    num_pictures: int
    notes: list[str]
    faults: list[str]


class _Output(NamedTuple):
    folder: Path
    identity: dict[str, Any]  # the effective one
    pictures: pa.Array  # that are ok: a value for each picture, the same in all outputs


def compare_outputs(folders: Sequence[Path], verdicts: Iterable[Verdict]) -> Compared:
    """Count the pictures that are ok in any output, and find those that are ok in more than one output of one kind.

    Two rows are of one picture if key and size are the same; the key alone, if an output does not know sizes. Outputs of other
    networks or settings hold other rows of the same pictures: a note says that they are not compared. The order of the outputs
    changes nothing but the order of words. The verdicts must have been made `with_ok_rows`.
    """
    outputs = _outputs(folders, verdicts)
    kinds: dict[str, list[_Output]] = {}
    for output in outputs:
        kinds.setdefault(kind_key(output.identity), []).append(output)
    notes, doubled = list[str](), [repeated(pc.value_counts(_pictures(kind))) for kind in kinds.values()]
    for one, other in combinations(kinds.values(), 2):
        if found := differing_fields(one[0].identity, other[0].identity):
            notes.append(_note(one, other, found))
        else:
            doubled.append(_common(one, other))
    faults = _doubled(outputs, pc.unique(pa.chunked_array(doubled, pa.large_binary())))
    return Compared(len(pc.unique(_pictures(outputs))), notes, list(faults))


def _outputs(folders: Sequence[Path], verdicts: Iterable[Verdict]) -> list[_Output]:
    verdicts = list(verdicts)
    rows = [pa.concat_tables([OK_SCHEMA.empty_table(), *(verdict.ok_rows or ())]) for verdict in verdicts]
    every = pa.concat_tables(rows)
    unsized = pc.unique(every["key"].filter(pc.is_null(every["size"])))
    found = []
    for folder, verdict, table in zip(folders, verdicts, rows, strict=True):
        known = pc.invert(pc.is_in(table["key"], value_set=unsized))
        sized = table.set_column(1, "size", pc.if_else(known, table["size"], pa.scalar(None, pa.int64())))
        job = verdict.job
        found.append(_Output(folder, effective_identity(job.identity, job.resolved), pc.unique(identities(sized))))
    return found


def _pictures(outputs: Sequence[_Output]) -> pa.ChunkedArray:
    """The pictures that are ok in each of the outputs, one after the other."""
    return pa.chunked_array([output.pictures for output in outputs], pa.large_binary())


def _common(one: Sequence[_Output], other: Sequence[_Output]) -> pa.Array:
    """The pictures that are ok in an output of `one` and in an output of `other`."""
    pictures = pc.unique(_pictures(one))
    return pictures.filter(pc.is_in(pictures, value_set=pc.unique(_pictures(other))))


def _note(one: Sequence[_Output], other: Sequence[_Output], found: Mapping[str, tuple[str, str]]) -> str:
    """Which outputs are not compared, and why: their kinds differ in the fields that were `found`."""
    left, right = (name_some([str(output.folder) for output in outputs]) for outputs in (one, other))
    fields = "; ".join(f"{name} {first} and {second}" for name, (first, second) in found.items())
    if "model_name" in found:
        fields = " and ".join(str(outputs[0].identity.get("model_name")) for outputs in (one, other))
    is_network = not {"model_name", "graph_sha256", "weights_sha256"}.isdisjoint(found)
    why = "are of different networks" if is_network else "have different settings"
    return f"the pictures of {left} are not compared with those of {right}: they {why} ({fields})"


def _doubled(outputs: Sequence[_Output], doubled: pa.Array) -> Iterator[str]:
    """A fault if there are doubled pictures, which names some of them."""
    if not len(doubled):
        return
    places = []
    for picture in doubled[:NAMED]:
        homes = [output for output in outputs if pc.is_in(picture, value_set=output.pictures).as_py()]
        where = [
            str(home.folder)
            for home in homes
            if any(other is not home and not differing_fields(home.identity, other.identity) for other in homes)
        ]
        places.append(f"{printable(picture.as_py().rpartition(bytes(1))[0])} in {' and '.join(where)}")
    what = "1 picture is" if len(doubled) == 1 else f"{len(doubled)} pictures are"
    advice = "leave one of the folders out, or run one again with --overwrite and --skip_done of the others"
    yield f"{what} ok in more than one folder ({name_some(places, len(doubled))}): {advice}"
