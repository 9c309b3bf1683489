"""Two jobs compared: what differs is what a plain loop over both tables finds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.insight.comparison.compare import Comparison, compare
from bulkinfer.insight.find_job import find_job
from bulkinfer.results.part_names import part_step
from bulkinfer.results.reader import read_results
from PIL import Image

from tests import pictures
from tests.commands import run_here
from tests.launches import write_photos
from tests.made_jobs import write_job

NUM = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jobs, a and b: b has another order, some other answers, some errors, and keys of its own."""
    random = np.random.default_rng(1)
    keys = [b"d/%03d.jpg" % number for number in range(NUM)]
    ids = np.argsort(random.random((NUM, 8)), axis=1)[:, :3]
    scores = -np.sort(-random.random((NUM, 3)), axis=1)
    write_job(tmp_path / "a", keys, ids, scores, errors={5: ("read", "no"), 6: ("decode", "no")}, precision="fp32")
    other = ids.copy()
    other[::10] = np.roll(other[::10], 1, axis=1)  # A's class is the second one here
    other[3::50] = (ids[3::50] + 3) % 8  # here it may be gone
    order = random.permutation(NUM)
    kept = order[:-4]
    names = [*(keys[place] for place in kept), b"new/1.jpg"]
    errors = {int(np.flatnonzero(kept == 6)[0]): ("decode", "no"), int(np.flatnonzero(kept == 7)[0]): ("infer", "no")}
    values = np.vstack([other[kept], [[0, 1, 2]]]), np.vstack([scores[kept] * 0.9, [[0.5, 0.2, 0.1]]])
    write_job(tmp_path / "b", names, *values, errors=errors, precision="int8", top_k=3)
    return tmp_path


def compared(folder: Path, **more: Any) -> Comparison:
    to = folder / "to"
    to.mkdir(exist_ok=True)
    return compare(find_job(str(folder / "a")), find_job(str(folder / "b")), to, **more)


def by_key(output: Path) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in read_results(output).table().to_pylist()}


def read_csv(path: Path) -> dict[str, dict[str, str]]:
    return {row["key"]: row for row in csv.DictReader(path.read_text().splitlines())}


@pytest.mark.parametrize("bucket_rows", [1000, 40])
def test_it_finds_what_a_plain_loop_finds(folder: Path, bucket_rows: int) -> None:
    found = compared(folder, bucket_rows=bucket_rows)
    a, b = by_key(folder / "a"), by_key(folder / "b")
    both = [key for key in a if key in b and a[key]["status"] == b[key]["status"] == "ok"]
    changed = {key for key in both if a[key]["class_ids"][0] != b[key]["class_ids"][0]}
    drifts = {
        key: abs(a[key]["scores"][0] - b[key]["scores"][b[key]["class_ids"].index(a[key]["class_ids"][0])])
        for key in both
        if a[key]["class_ids"][0] in b[key]["class_ids"]
    }
    changes = found.changes
    assert len(changed) > 20
    assert set(read_csv(folder / "to" / "changed.csv")) == changed
    assert (changes.num_compared, changes.changed) == (len(both), len(changed))
    assert changes.agreement == pytest.approx(1 - len(changed) / len(both))
    assert (changes.num_drift, changes.drift_sum) == (len(drifts), pytest.approx(sum(drifts.values())))
    assert changes.drift_largest == pytest.approx(max(drifts.values()))
    assert changes.drift_key == max(drifts, key=lambda key: drifts[key])
    assert (changes.error_in_one, changes.error_in_other, changes.error_in_both) == (1, 1, 1)
    assert (changes.only_one, changes.only_other, changes.first_only_other) == (4, 1, ["new/1.jpg"])
    rest = {key: (row["a"], row["b"]) for key, row in read_csv(folder / "to" / "uncompared.csv").items()}
    assert set(rest) == ({*a} | {*b}) - {*both}
    assert rest["new/1.jpg"] == ("no row", "ok")
    assert rest["d/007.jpg"] == ("ok", "error (infer)")
    most = changes.most_changed()
    assert len(most) == 24
    assert [change.drop for change in most] == sorted((change.drop for change in most), reverse=True)


def test_the_differences_are_named(folder: Path) -> None:
    found = compared(folder)
    assert list(found.differences.items()) == [("precision", ("fp32", "int8"))]
    content = json.loads((folder / "to" / "compare.json").read_text())
    assert content["differences"] == {"precision": ["fp32", "int8"]}
    assert content["changed"] == found.changes.changed
    assert found.has_same_names


def test_a_contact_sheet_of_what_changed(folder: Path) -> None:
    assert compared(folder, data_dir=str(folder / "nowhere")).num_shown == 0
    assert not (folder / "to" / "changed.png").exists()
    names = [f"d/{number:03d}.jpg" for number in range(0, NUM, 10)]
    pictures.write_files(folder / "photos", {name: pictures.encode(pictures.photo(), "JPEG") for name in names})
    found = compared(folder, data_dir=str(folder / "photos"))
    assert found.num_shown is not None
    assert 10 <= found.num_shown <= 24
    with Image.open(folder / "to" / "changed.png") as sheet:
        assert sheet.width > 6 * 200
        assert sheet.height > 4 * 200


def test_a_manifest_that_cannot_be_opened_costs_the_sheet(folder: Path) -> None:
    write_photos(folder / "photos", 2)
    assert run_here("partition_dataset", "--data_dir", "photos", "--partitions", 1, cwd=folder).returncode == 0
    manifest = folder / "datasets" / "0" / "manifest.parquet"
    manifest.unlink()
    manifest.symlink_to(manifest.name)  # a loop: an OSError even for the administrator
    found = compared(folder, data_dir=str(folder / "datasets"))
    assert found.num_shown == 0
    assert {path.name for path in found.files} == {"compare.json", "changed.csv", "uncompared.csv"}


def test_refusals(folder: Path) -> None:
    a = find_job(str(folder / "a"))
    with pytest.raises(UsageError, match=r"both jobs are the one in .*a: name two"):
        compare(a, a, folder)
    write_job(folder / "c", [b"other"], [[1]])
    with pytest.raises(UsageError, match=r"ok in both \(their keys differ, such as d/000.jpg and other\): give two jobs"):
        compare(a, find_job(str(folder / "c")), folder)
    assert not (folder / "changed.csv").exists()


def test_a_damaged_part_ends_the_comparison(folder: Path) -> None:
    part = next(path for path in sorted((folder / "b").iterdir()) if part_step(path.name))
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(RunError, match="is damaged"):
        compared(folder, bucket_rows=40)
    assert list((folder / "to").iterdir()) == []
