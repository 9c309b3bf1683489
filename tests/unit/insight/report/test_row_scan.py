"""The numbers of one pass over the rows, against the same numbers counted row by row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from bulkinfer.insight.report.row_scan import FIRST_ERRORS, NUM_BINS, scan_rows
from bulkinfer.results.reader import read_results

from tests.reports import Row, write_job


def some_rows(count: int) -> list[Row]:
    """Random rows; every ninth is an error, every third of the others has a label, and one score is NaN."""
    random, rows = np.random.default_rng(7), []
    for i in range(count):
        first, second = (int(number) for number in random.choice(4, 2, replace=False))
        best = round(float(random.random()), 3) if i != 5 else float("nan")
        error = (("read", "decode", "infer")[i % 3 if i % 2 else 1], f"fault {i}") if i % 9 == 0 else None
        label = int(random.integers(0, 4)) if i % 3 == 0 else None
        rows.append(Row(b"%04d.png" % i, (first, second), (best, best / 2), error, label))
    return rows


def test_the_numbers_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = some_rows(200)
    found = scan_rows(read_results(write_job(tmp_path, rows) / "results"), 5)
    ok = [row for row in rows if row.error is None]
    scored = [float(np.float32(row.scores[0])) for row in ok if row.scores[0] == row.scores[0]]
    assert found.num_ok == len(ok)
    assert found.stages == Counter(row.error[0] for row in rows if row.error)
    assert found.classes == Counter(row.classes[0] for row in ok)
    expected, _ = np.histogram(scored, NUM_BINS, (0, 1))
    assert found.num_scored == len(scored)
    assert abs(found.score_bins - expected).sum() <= 2  # a score on the border of two bins may be rounded to either
    assert np.isclose(found.score_sum, sum(scored))
    assert found.num_without_score == len(ok) - len(scored) == 1
    labelled = [row for row in ok if row.label is not None]
    assert found.labelled == len(labelled)


def test_samples_are_the_extremes_in_order(tmp_path: Path) -> None:
    rows = some_rows(200)
    found = scan_rows(read_results(write_job(tmp_path, rows) / "results"), 5)
    ok = [(row.scores[0], i, row) for i, row in enumerate(rows) if row.error is None and row.scores[0] == row.scores[0]]
    least = [row.key for _, _, row in sorted(ok, key=lambda each: each[:2])[:5]]
    most = [row.key for _, _, row in sorted(ok, key=lambda each: (-each[0], each[1]))[:5]]
    assert [sample.key for sample in found.unsure.samples] == least
    assert [sample.key for sample in found.sure.samples] == most
    assert found.sure.samples[0].class_ids == next(row.classes for row in rows if row.key == most[0])


def test_errors_are_the_first_of_each_stage(tmp_path: Path) -> None:
    rows = [Row(b"%04d.png" % i, error=("decode" if i % 2 else "read", f"fault {i}")) for i in range(2 * FIRST_ERRORS + 30)]
    found = scan_rows(read_results(write_job(tmp_path, rows) / "results"), 5)
    assert [sample.error for sample in found.errors["read"]] == [f"fault {2 * i}" for i in range(FIRST_ERRORS)]
    assert [sample.error for sample in found.errors["decode"]] == [f"fault {2 * i + 1}" for i in range(FIRST_ERRORS)]
    assert (found.num_ok, found.num_errors) == (0, len(rows))


def test_keys_are_bytes_and_no_sample_is_kept_if_none_is_wanted(tmp_path: Path) -> None:
    results = read_results(write_job(tmp_path, [Row(b"caf\xe9.png"), Row(b"line\n.png", scores=(0.5, 0.1))]) / "results")
    assert [sample.key for sample in scan_rows(results, 2).sure.samples] == [b"caf\xe9.png", b"line\n.png"]
    assert scan_rows(results, 0).sure.samples == []
