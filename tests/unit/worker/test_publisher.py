"""publisher.py: a part, a line and a report for each step, whole or cut short by a stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.results import output_store
from bulkinfer.results.parquet_parts import METADATA_KEY
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Batch, Step
from bulkinfer.worker import publisher as publisher_module
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.protocol import Event, RunSpec, StepDone
from bulkinfer.worker.publisher import Publisher

from tests.launches import launch_of, spec_of
from tests.rows import batch_of, logits_of, record


class Place:
    """A publisher and what it says."""

    def __init__(self, spec: RunSpec, *, warm_up_runs: int = 0) -> None:
        self.spec, self.meter = spec, Meter(warm_up_runs)
        self.events: list[Event] = []
        self.lines: list[str] = []
        self.publisher = Publisher(
            spec,
            batch_size=4,
            metadata={"fingerprint": "f"},
            meter=self.meter,
            report=self.events.append,
            say=self.lines.append,
        )

    def fill(self, rows: Any, *offsets: int, errors: dict[int, tuple[str, str]] | None = None) -> None:
        """Batches of four at these offsets of a step that begins at record 0."""
        for offset in offsets:
            numbers = list(range(offset, min(offset + 4, len(rows.step))))
            batch = batch_of([record(n) for n in numbers], offset=offset, errors=errors)
            rows.fill(batch, {"logits": logits_of(numbers, num_classes=8)})

    @property
    def parts(self) -> list[str]:
        assert self.spec.output is not None
        return sorted(path.name for path in Path(self.spec.output).glob("part-*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(spec_of(launch_of(tmp_path)))


class Clock:
    """Stands in for the clock of publisher and meter."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("bulkinfer.worker.publisher.time.perf_counter", clock)
    return clock


def test_a_complete_step_is_a_part_a_report_and_a_line(place: Place) -> None:
    rows = place.publisher.new_rows(Step(0, 0, 10))
    place.fill(rows, 8, 0)
    place.fill(rows, 4, errors={1: ("decode", "truncated JPEG"), 2: ("infer", "RuntimeError")})
    place.publisher.publish(rows)
    assert place.parts == [part_name(Step(0, 0, 10))]
    path = Path(str(place.spec.output)) / place.parts[0]
    (event,) = place.events
    assert isinstance(event, StepDone)
    assert (event.step, event.count, event.ok, event.stages) == (Step(0, 0, 10), 10, 8, {"decode": 1, "infer": 1})
    assert event.sha256 == file_sha256(path)
    assert event.totals.peak_memory_bytes > 10_000_000
    assert event.totals.cpu_s > 0
    table = pq.read_table(path)
    assert table["key"].to_pylist() == [f"{n:06d}.jpg" for n in range(10)]
    assert [i for i, status in enumerate(table["status"].to_pylist()) if status == "error"] == [5, 6]
    assert json.loads(table.schema.metadata[METADATA_KEY])["fingerprint"] == "f"
    (line,) = place.lines
    assert line.startswith("Total ")
    assert line.endswith(" images/sec.")


def test_a_stop_publishes_what_is_whole_from_the_start_of_each_step(place: Place) -> None:
    steps = [Step(0, 0, 10), Step(1, 0, 10), Step(2, 0, 10), Step(3, 0, 10)]
    done, cut, gap, _untouched = (place.publisher.new_rows(step) for step in steps)
    place.fill(done, 0, 4, 8)
    place.fill(cut, 0, 4)
    place.fill(gap, 4, 8)  # its first batch is missing
    place.publisher.publish(done)
    place.publisher.publish_unfinished()
    assert place.parts == [part_name(Step(0, 0, 10)), part_name(Step(1, 0, 8))]
    assert [(event.step, event.count) for event in place.events if isinstance(event, StepDone)] == [
        (Step(0, 0, 10), 10),
        (Step(1, 0, 10), 8),
    ]
    assert len(place.lines) == 2


def test_a_synthetic_step_is_only_counted(tmp_path: Path) -> None:
    place = Place(spec_of(launch_of(tmp_path, synthetic=True)))
    whole, cut = (place.publisher.new_rows(Step(0, start, start + 8)) for start in (0, 8))
    for rows, count in ((whole, 4), (whole, 4), (cut, 4)):
        rows.fill(Batch(None, [], [], count=count), {"logits": None})  # type: ignore[arg-type]
    place.publisher.publish(whole)
    place.publisher.publish_unfinished()
    told = [event for event in place.events if isinstance(event, StepDone)]
    assert [(event.count, event.ok, event.stages, event.sha256) for event in told] == [(8, 8, {}, ""), (4, 4, {}, "")]
    assert not list(tmp_path.rglob("part-*"))


def test_a_line_tells_of_the_time_since_the_last_one(tmp_path: Path, clock: Clock) -> None:
    place = Place(spec_of(launch_of(tmp_path, synthetic=True)))
    for seconds in (8.0, 2.0):
        with place.meter.timing("wait_for_batch"):
            clock.now += 2
        with place.meter.timing("infer"):
            clock.now += seconds
        rows = place.publisher.new_rows(Step(0, 0, 4))
        rows.fill(Batch(None, [], [], count=4), {"logits": None})  # type: ignore[arg-type]
        place.publisher.publish(rows)
    told = [event for event in place.events if isinstance(event, StepDone)]
    assert [(event.total_s, event.wait_s, event.compute_s) for event in told] == [(10, 2, 8), (4, 2, 2)]
    assert [event.totals.metrics["seconds"]["infer"] for event in told] == [8, 10], "totals are of all the process did"
    assert (
        place.lines[1] == "Total 4.000 sec.   Preprocessing 2.000 sec (50.0%).   Compute 2.000 sec (50.0%).   1.0 images/sec."
    )


def test_the_warm_up_is_in_no_line(tmp_path: Path, clock: Clock) -> None:
    """Three runs warm up: the first step, and one batch of the second. What came before their end is in no seconds either."""
    place = Place(spec_of(launch_of(tmp_path, generated=True)), warm_up_runs=3)
    for start, batches in ((0, 2), (8, 3), (20, 1)):
        rows = place.publisher.new_rows(Step(0, start, start + 4 * batches))
        for _ in range(batches):
            with place.meter.timing("wait_for_batch"):
                clock.now += 1
            with place.meter.timing("infer"):
                clock.now += 4
            rows.fill(Batch(None, [], [], count=4), {"logits": None})  # type: ignore[arg-type]
            place.meter.count_pictures(4)
        place.publisher.publish(rows)
    told = [event for event in place.events if isinstance(event, StepDone)]
    assert [(event.count, event.warm_up) for event in told] == [(8, 8), (12, 4), (4, 0)]
    assert [(event.total_s, event.wait_s, event.compute_s) for event in told[1:]] == [(10, 2, 8), (5, 1, 4)]
    assert place.lines == [
        "warm-up: 8 pictures",
        "warm-up: 4 pictures",
        "Total 10.000 sec.   Preprocessing 2.000 sec (20.0%).   Compute 8.000 sec (80.0%).   0.8 images/sec.",
        "Total 5.000 sec.   Preprocessing 1.000 sec (20.0%).   Compute 4.000 sec (80.0%).   0.8 images/sec.",
    ]


def test_nothing_is_told_of_a_part_that_could_not_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publisher_module, "write_part", full_disk)
    rows = place.publisher.new_rows(Step(0, 0, 4))
    place.fill(rows, 0)
    with pytest.raises(OSError, match="No space left"):
        place.publisher.publish(rows)
    assert (place.events, place.lines) == ([], [])


@pytest.mark.parametrize("is_renamed", [True, False])
def test_an_output_that_a_user_removes_is_named(place: Place, is_renamed: bool) -> None:
    output = Path(str(place.spec.output))
    rows = place.publisher.new_rows(Step(0, 0, 4))
    place.fill(rows, 0)
    if is_renamed:
        output.rename(output.with_name("elsewhere"))
    else:
        shutil.rmtree(output)
    with pytest.raises(
        RunError, match=rf"^{output} was removed or renamed while the job ran: run the same command again, which"
    ):
        place.publisher.publish(rows)
    assert (place.events, place.lines) == ([], [])


@pytest.mark.parametrize("content", [None, '{"token": "theirs"}', "{"])
def test_nothing_is_published_under_a_lock_that_is_anothers(tmp_path: Path, content: str | None) -> None:
    lock = tmp_path / "_lock.json"
    lock.write_text('{"token": "ours"}')
    place = Place(replace(spec_of(launch_of(tmp_path)), locks={str(lock): "ours"}))
    rows = place.publisher.new_rows(Step(0, 0, 4))
    place.fill(rows, 0)
    place.publisher.publish(rows)
    assert len(place.parts) == 1
    rows = place.publisher.new_rows(Step(0, 4, 8))
    place.fill(rows, 0)
    if content is None:
        lock.unlink()
    else:
        lock.write_text(content)
    with pytest.raises(
        RunError,
        match=r"_lock\.json was lost: its holder has ended, or did not renew it for 60 s",
    ):
        place.publisher.publish(rows)
    assert len(place.parts) == 1


def test_a_lock_that_is_lost_while_a_part_is_made_is_seen_before_the_part_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "_lock.json"
    lock.write_text('{"token": "ours"}')
    place = Place(replace(spec_of(launch_of(tmp_path)), locks={str(lock): "ours"}))
    rows = place.publisher.new_rows(Step(0, 0, 4))
    place.fill(rows, 0)

    def hashing(path: Path) -> str:
        lock.write_text('{"token": "theirs"}')
        return file_sha256(path)

    monkeypatch.setattr(output_store, "file_sha256", hashing)
    with pytest.raises(RunError, match="was lost"):
        place.publisher.publish(rows)
    assert (place.parts, place.events) == ([], [])
    assert place.spec.output is not None
    assert not list(Path(place.spec.output).glob("_tmp-*"))
