"""Pictures that are nearly the same, by the cosine of their embeddings, among a sample of the rows.

Shape letters: N rows of the sample, B rows of a block, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.insight.report.row_scan import Sample
from bulkinfer.records.manifest_rows import raw_key_column
from bulkinfer.results.parquet_parts import read_part
from bulkinfer.results.part_names import part_step
from bulkinfer.results.reader import Results
from bulkinfer.types import Array

MOST_ROWS = 4096  # of the sample
LEAST_COSINE = 0.97  # of a pair that is near
_MOST_PARTS = 64  # that the sample is read from
_BLOCK = 512  # rows that are compared with all others at once


@dataclass(frozen=True)
class Pair:
    """Two pictures and the cosine of their embeddings."""

    one: Sample
    other: Sample
    cosine: float


@dataclass(frozen=True)
class NearDuplicates:
    """The `pairs` with the largest cosines, `num_pairs` of at least LEAST_COSINE in all, among `num_rows` rows of `column`."""

    column: str
    num_rows: int
    num_pairs: int
    pairs: tuple[Pair, ...]


def embedding_column(identity: dict[str, Any]) -> str:
    """The saved output of a job whose meaning is an embedding; empty if there is none."""
    outputs, saved = identity.get("outputs", {}), identity.get("save", [])
    return next((name for name, meaning in outputs.items() if meaning == "embedding" and name in saved), "")


def find_near_duplicates(results: Results, column: str, most_pairs: int) -> NearDuplicates:
    """Compare the rows of a sample: the first ok rows of parts that lie evenly over the job, MOST_ROWS in all.

    Memory: the sample, one part, and a block of cosines. Rows whose numbers are not finite, or all zero, are left out.
    """
    samples, embeddings_ND = _sample(results, column)
    if not samples:
        return NearDuplicates(column, 0, 0, ())
    near, num_pairs = list[tuple[float, int, int]](), 0
    for first in range(0, len(samples), _BLOCK):
        cosines_BN = embeddings_ND[first : first + _BLOCK] @ embeddings_ND[first:].T
        cosines_BN[np.tri(len(cosines_BN), cosines_BN.shape[1], dtype=bool)] = -1  # each pair once, none with itself
        rows, columns = np.nonzero(cosines_BN >= LEAST_COSINE)
        values, num_pairs = cosines_BN[rows, columns], num_pairs + len(rows)
        best = np.argsort(-values, kind="stable")[:most_pairs]
        near += [(float(values[i]), first + int(rows[i]), first + int(columns[i])) for i in best]
        near = sorted(near, key=lambda each: (-each[0], *each[1:]))[:most_pairs]
    pairs = tuple(Pair(samples[one], samples[other], min(cosine, 1.0)) for cosine, one, other in near)
    return NearDuplicates(column, len(samples), num_pairs, pairs)


def _sample(results: Results, column: str) -> tuple[list[Sample], Array]:
    """Rows of the sample, and their embeddings with length 1, N x D float32."""
    samples, blocks, left = list[Sample](), list[Array](), MOST_ROWS
    chosen = _evenly(len(results.parts), _MOST_PARTS)
    for position, number in enumerate(chosen):
        share = -(-left // (len(chosen) - position))
        table = _part(results, number, column)
        rows = table.filter(pc.is_null(table["stage"])).slice(0, share)
        values_ND = _embeddings(rows[column])
        lengths = np.linalg.norm(values_ND, axis=1)
        usable = np.flatnonzero(np.isfinite(lengths) & (lengths > 0))
        blocks.append(values_ND[usable] / lengths[usable, None])
        keys, partitions = raw_key_column(rows).to_pylist(), rows["partition"].to_pylist()
        samples += [Sample(keys[row], partitions[row]) for row in usable]
        left -= len(rows)
    return samples, np.concatenate(blocks) if blocks else np.zeros((0, 1), np.float32)


def _part(results: Results, number: int, column: str) -> pa.Table:
    step = part_step(results.parts[number].name)
    assert step is not None, "Results lists parts only"
    return read_part(results.output, step, results.job["fingerprint"], ("partition", column))[1]


def _embeddings(column: pa.ChunkedArray) -> Array:
    flat = np.asarray(pc.list_flatten(column).to_numpy(), np.float32)
    return flat.reshape(-1, column.type.list_size)


def _evenly(count: int, most: int) -> list[int]:
    """At most `most` of the numbers 0..count, spread evenly."""
    return sorted({index * count // min(count, most) for index in range(min(count, most))})
