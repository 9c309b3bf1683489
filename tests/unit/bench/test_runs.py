"""runs.py: pictures that come again and again, and what each kind of measurement asks of the workers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.bench import runs as bench_runs
from bulkinfer.bench.measurement import Measurement
from bulkinfer.bench.runs import Bench, decoding_plan, enough_records, open_job, repeated
from bulkinfer.commands import partition_dataset
from bulkinfer.errors import RunError, UsageError
from bulkinfer.host.cores import CoreBudget, ThreadPlan
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.worker.protocol import RunSpec

from tests.launches import config_of, job_of, plan_of, write_photos

BUDGET = CoreBudget((0, 1, 2, 3), None)


def test_without_pictures_the_command_that_was_typed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(config_of(tmp_path), data_dir="")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    with pytest.raises(UsageError, match=r"^no folder of pictures given: .*, as in: bulkinfer bench --data_dir photos$"):
        open_job(config)


def test_few_pictures_come_again_and_again(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", 5)
    dataset, pictures = repeated(open_dataset(photos), tmp_path / "again", 12)
    assert (pictures, dataset.num_records) == (5, 15)
    (partition,) = dataset.partitions
    written = Manifest.read(tmp_path / "again" / "0" / "manifest.parquet")
    assert written.content_hash == partition.manifest.content_hash == dataset.content_hash
    paths = [Path(os.fsdecode(record.place)) for record in written.records()]
    assert paths == sorted(photos.iterdir()) * 3


def test_partitions_are_put_together(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", 7)
    words = ["--data_dir", str(photos), "--partitions", "3", "--output", str(tmp_path / "datasets")]
    assert partition_dataset.main(words) == 0
    dataset, pictures = repeated(open_dataset(tmp_path / "datasets"), tmp_path / "again", 7)
    assert (pictures, dataset.num_records) == (7, 7)
    assert all(Path(os.fsdecode(record.place)).is_file() for record in dataset.partitions[0].manifest.records())


def test_of_many_pictures_some_are_taken_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_runs, "_PICTURES", 4)
    dataset, pictures = repeated(open_dataset(write_photos(tmp_path / "photos", 9)), tmp_path / "again", 1)
    names = [record.key.rpartition(b"/")[2][:3] for record in dataset.partitions[0].manifest.records()]
    assert (pictures, names) == (3, [b"000", b"003", b"006"])


def test_decoding_gets_all_cores_of_each_worker() -> None:
    plan = decoding_plan(replace(plan_of(2), streams=2, threads_per_stream=4), BUDGET, 0)
    assert (plan.num_devices, plan.streams, plan.threads_per_stream, plan.num_workers) == (2, 1, 1, 2)
    assert decoding_plan(plan_of(9), BUDGET, 0).num_workers == 1


@pytest.mark.parametrize(("asked", "processes"), [(0, 3), (2, 2), (-1, 0), (99, 12)])
def test_decoding_takes_loader_processes_as_a_launch_would(asked: int, processes: int) -> None:
    plan = decoding_plan(plan_of(), CoreBudget(tuple(range(12)), None), asked)
    assert (plan.num_workers, plan.loader_processes) == (12, processes)


def test_there_are_more_records_than_can_be_prepared() -> None:
    assert enough_records(BUDGET, 4) == 20_000


@pytest.mark.parametrize(
    ("kind", "source", "threads", "writes", "records"),
    [
        ("decode", "decode", 4, False, 12),
        ("inference", "synthetic", 1, False, 1 << 40),
        ("end_to_end", "pictures", 1, True, 12),
    ],
)
def test_what_workers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, source: str, threads: int, writes: bool, records: int
) -> None:
    asked: list[Any] = []

    def measure(run_file: Path, plan: ThreadPlan, **options: Any) -> Any:
        spec = RunSpec.read(run_file)
        assert plan.num_workers == spec.num_workers
        asked.append((spec, options))
        if spec.output:
            (Path(spec.output) / "part-00000.parquet").write_text("rows")
        raise KeyboardInterrupt  # however it ends, the rows go

    monkeypatch.setattr(bench_runs, "measure", measure)
    job = job_of(config_of(tmp_path, photos=12))
    assert job.dataset is not None
    dataset, _ = repeated(job.dataset, tmp_path / "log" / "pictures", 12)
    place = Bench(replace(job, dataset=dataset), plan_of(), BUDGET, tmp_path / "log", 3, 12)
    with pytest.raises(KeyboardInterrupt):
        place.run(kind, plan_of(), 50.0)
    ((spec, options),) = asked
    assert (spec.input, spec.num_workers, spec.output is not None) == (source, threads, writes)
    assert spec.log_dir == str(tmp_path / "log" / kind)
    assert options == {"batch_size": 4, "num_records": records, "rate": 50.0, "seconds": 3}
    assert not (tmp_path / "log" / kind / "results").exists()


def test_without_a_good_picture_there_is_nothing_to_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error rows take no time: they would look like a fast host."""
    job = job_of(config_of(tmp_path, photos=12))
    bench = Bench(job, plan_of(), BUDGET, tmp_path / "log", 3, 12)
    nothing = Measurement(100, 100, 1.0, 100.0, 1.0, {}, 0)
    monkeypatch.setattr(bench_runs, "measure", lambda *_, **__: (nothing, None))
    with pytest.raises(RunError, match="none of the 100 pictures that were tried can be used"):
        bench.run("end_to_end", bench.plan, None)
    assert bench.run("decode", bench.plan, None)[0] == nothing
