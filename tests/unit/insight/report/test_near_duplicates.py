"""Pairs of near pictures, against every pair compared one by one."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.insight.report import near_duplicates
from bulkinfer.insight.report.near_duplicates import LEAST_COSINE, embedding_column, find_near_duplicates
from bulkinfer.results.reader import read_results

from tests.reports import Row, write_job


def rows_with_embeddings(count: int) -> list[Row]:
    random = np.random.default_rng(3)
    vectors = random.standard_normal((count, 8))
    for i in range(0, count - 5, 10):
        vectors[i + 5] = 3 * vectors[i] + 0.05 * random.standard_normal(8)
    vectors[1], vectors[2, 0] = 0, np.nan
    return [Row(b"%04d.png" % i, embedding=tuple(map(float, vector))) for i, vector in enumerate(vectors)]


def cosine(one: Row, other: Row) -> float:
    first, second = (np.array(row.embedding, np.float32).astype(float) for row in (one, other))
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


@pytest.mark.parametrize("block", [3, 512])
def test_pairs_are_those_of_all_comparisons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(near_duplicates, "_BLOCK", block)
    rows = rows_with_embeddings(60)
    found = find_near_duplicates(read_results(write_job(tmp_path, rows) / "results"), "embedding", 4)
    usable = [row for i, row in enumerate(rows) if i not in (1, 2)]
    near = {(one.key, other.key): cosine(one, other) for one, other in combinations(usable, 2)}
    near = {keys: value for keys, value in near.items() if value >= LEAST_COSINE}
    assert (found.num_rows, found.num_pairs) == (len(usable), len(near))
    best = sorted(near, key=lambda keys: -near[keys])[:4]
    assert [(pair.one.key, pair.other.key) for pair in found.pairs] == best
    assert [pair.cosine for pair in found.pairs] == pytest.approx([near[keys] for keys in best], abs=1e-5)


def test_the_sample_is_bounded_and_lies_over_the_whole_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "MOST_ROWS", 20)
    monkeypatch.setattr(near_duplicates, "_MOST_PARTS", 5)
    rows = [Row(b"%04d.png" % i, embedding=(1.0, 0.0)) for i in range(100)]
    found = find_near_duplicates(read_results(write_job(tmp_path, rows, rows_per_part=10) / "results"), "embedding", 1000)
    assert found.num_rows == 20
    numbers = {int(sample.key[:4]) // 10 for pair in found.pairs for sample in (pair.one, pair.other)}
    assert numbers == {0, 2, 4, 6, 8}  # parts


def test_only_a_saved_embedding_is_compared() -> None:
    outputs = {"logits": "logits", "pooled": "embedding"}
    assert embedding_column({"outputs": outputs, "save": ["topk", "pooled"]}) == "pooled"
    assert embedding_column({"outputs": outputs, "save": ["topk", "logits"]}) == ""
