"""pipeline.py: the main path with a fake network; what fails costs its own row, what must not fail is raised."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RecordError, RunError
from bulkinfer.results.rows import StepRows
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.runtime.session import Session
from bulkinfer.types import Facts, Record, Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.loader import Loader
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.pipeline import StepFeed, Tally, run_steps
from bulkinfer.worker.synthetic import SyntheticLoader
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs import MARKER, grows_on, overflows_on_marker, raises_on_marker, save
from tests.models import COLOURS, SIZE
from tests.rows import record, task

Array = np.ndarray[Any, Any]
TASK = task("topk", "logits", top_k=1)
PATIENCE_S = 60.0  # nothing here takes a hundredth of it; a machine may be busy


class FakeSession:
    """logits[i, n % 4] = n + 1, where n is the grey level of picture i; fails if a picture's level is in `deadly`."""

    def __init__(self, deadly: frozenset[int] = frozenset(), seconds: float = 0.0) -> None:
        self.deadly, self.seconds = deadly, seconds
        self.runs: list[list[int]] = []
        self.lock = threading.Lock()

    def run(self, images: Array) -> dict[str, Array]:
        levels = images[:, 0, 0, 0].astype(int)
        assert images.shape == (4, 2, 2, 3)
        assert (images == levels[:, None, None, None]).all()
        with self.lock:
            self.runs.append(levels.tolist())
        time.sleep(self.seconds)
        if guilty := self.deadly & set(levels.tolist()):
            raise RuntimeError(f"Non-zero status code, indices {sorted(guilty)} out of bounds")
        logits = np.zeros((4, 4), np.float32)
        logits[np.arange(4), levels % 4] = levels + 1
        return {"logits": logits}


class Run:
    """One call of run_steps over records whose pictures have the level number % 250 + 1 (0 is padding)."""

    def __init__(
        self, steps: Any, session: Any, *, streams: int = 2, bad: frozenset[int] = frozenset(), **options: Any
    ) -> None:
        self.steps, self.session, self.bad = steps, session, bad
        self.in_flight = InFlight(options.get("loaders", 2), streams)
        self.published: list[StepRows] = []
        self.opened: list[StepRows] = []
        self.meter = options.get("meter") or Meter()
        self.to_input: Callable[[Array], Array] = options.get("to_input", lambda images: images)
        self.publish: Callable[[Any], None] = options.get("publish", self.published.append)
        self.source = Loader(
            steps,
            records=lambda step: (record(n) for n in range(step.start, step.end)),
            new_rows=self.open_rows,
            load=options.get("load", self.load),
            batch_shape=(4, 2, 2, 3),
            marks=self.in_flight.loaders,
            num_streams=streams,
            meter=self.meter,
        )

    def open_rows(self, step: Step) -> StepRows:
        self.opened.append(StepRows(step, TASK, 4))
        return self.opened[-1]

    def load(self, found: Record, out: Array) -> Facts:
        if found.number in self.bad:
            raise RecordError("decode", "truncated JPEG")
        out[:] = found.number % 250 + 1
        return Facts("JPEG", 1, 2, 2)

    def run(self) -> Run:
        run_steps(self.source, self.session, to_input=self.to_input, marks=self.in_flight.streams, meter=self.meter,
                  publish=self.publish)  # fmt: skip
        return self


def check_rows(rows: StepRows, failed: Mapping[int, str]) -> None:
    """Every record has the row that belongs to it; `failed` are record numbers and the stage of their error."""
    step = rows.step
    assert [r.number for r in rows.records if r] == list(range(step.start, step.end))
    assert {step.start + i: stage for i, (stage, _) in rows.errors.items()} == {
        n: stage for n, stage in failed.items() if step.start <= n < step.end
    }
    assert rows.class_ids_SK is not None
    for i, number in enumerate(range(step.start, step.end)):
        if number not in failed:
            level = number % 250 + 1
            assert rows.class_ids_SK[i, 0] == level % 4
            assert rows.saved["logits"][i, level % 4] == level + 1


@pytest.mark.parametrize("streams", [1, 2, 5])
def test_every_record_has_its_row(streams: int) -> None:
    steps = [Step(0, 0, 10), Step(0, 10, 11), Step(2, 100, 132)]
    run = Run(steps, FakeSession(), streams=streams).run()
    assert sorted(rows.step for rows in run.published) == steps
    for rows in run.published:
        check_rows(rows, {})
    assert len(run.session.runs) == 3 + 1 + 8
    counted = run.meter.snapshot()
    assert counted.runs.total() == 12
    assert {"infer", "rows", "write", "wait_for_batch"} <= set(counted.seconds)


def test_streams_run_at_once() -> None:
    """No stream's first run ends before all three run."""

    class Together(FakeSession):
        together, seen = threading.Barrier(3), threading.local()

        def run(self, images: Array) -> dict[str, Array]:
            if not hasattr(self.seen, "has_run"):
                self.seen.has_run = True
                self.together.wait(PATIENCE_S)
            return super().run(images)

    run = Run([Step(0, 0, 64)], Together(), streams=3).run()
    assert len(run.session.runs) == 16


def test_bad_pictures_cost_their_own_rows() -> None:
    bad = frozenset({1, 4, 5, 6, 7, 9})
    run = Run([Step(0, 0, 10)], FakeSession(), bad=bad).run()
    check_rows(run.published[0], dict.fromkeys(bad, "decode"))
    assert len(run.session.runs) == 2, "the batch of 4 to 7 has no good picture and is not run"


def test_a_picture_that_makes_the_run_fail_costs_its_own_row() -> None:
    run = Run([Step(0, 0, 11)], FakeSession(frozenset({7, 11})), bad=frozenset({5}), streams=1).run()
    check_rows(run.published[0], {5: "decode", 6: "infer", 10: "infer"})
    stage, message = run.published[0].errors[6]
    assert (stage, message) == ("infer", "RuntimeError: Non-zero status code, indices [7] out of bounds")


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)), st.integers(1, 3))
def test_isolation_finds_exactly_the_guilty(deadly: set[int], bad: set[int], streams: int) -> None:
    levels = frozenset(n + 1 for n in deadly)
    run = Run([Step(0, 0, 17), Step(0, 17, 30)], FakeSession(levels), bad=frozenset(bad), streams=streams).run()
    assert len(run.published) == 2
    for rows in run.published:
        check_rows(rows, {**dict.fromkeys(deadly, "infer"), **dict.fromkeys(bad, "decode")})
    assert len(run.session.runs) <= 9 + 2 * 2 * len(deadly), "a binary search, in batches of four"


def test_a_long_message_of_the_runtime_is_cut() -> None:
    class Verbose(FakeSession):
        def run(self, images: Array) -> dict[str, Array]:
            if images.any():
                raise ValueError("x" * 10_000)
            return super().run(images)

    run = Run([Step(0, 0, 2)], Verbose(), streams=1).run()
    assert [len(message) for _, message in run.published[0].errors.values()] == [500, 500]


def test_a_failure_that_does_not_come_back_costs_no_row() -> None:
    class Moody(FakeSession):
        def run(self, images: Array) -> dict[str, Array]:
            if not self.runs:
                self.runs.append([])
                raise RuntimeError("out of memory")
            return super().run(images)

    check_rows(Run([Step(0, 0, 12)], Moody(), streams=1).run().published[0], {})


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_broken_session_is_raised_not_turned_into_rows(size: int) -> None:
    """A network that fails on zeros too is broken; the pictures are not to blame."""

    class Broken(FakeSession):
        def run(self, images: Array) -> dict[str, Array]:
            super().run(images)
            if len(self.runs) > 2:
                raise RuntimeError(f"device lost in run {len(self.runs)}")
            return super().run(images)

    run = Run([Step(0, 0, 4), Step(0, 4, 4 + size)], Broken(), streams=1, loaders=1)  # the first step comes first
    error = raised(run)
    assert isinstance(error, RunError)
    words = "the network fails on pictures, and on zeros as well: device lost in run 3"
    assert str(error) == words, "the first failure, not what came of it"
    assert [rows.step for rows in run.published] in ([], [Step(0, 0, 4)])
    assert not run.opened[-1].errors
    assert run.opened[-1].finished_prefix() == 0


def test_a_network_that_fails_from_the_first_batch_on_is_one_sentence_and_no_row() -> None:
    class Broken:
        def run(self, images: Array) -> dict[str, Array]:
            raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code\nwith details")

    run = Run([Step(0, 0, 400)], Broken(), bad=frozenset({1, 2}))
    error = raised(run)
    assert isinstance(error, RunError)
    assert str(error) == "the network fails on pictures, and on zeros as well: Non-zero status code"
    assert not run.opened[0].errors.keys() - {1, 2}
    assert run.opened[0].finished_prefix() == 0


def test_a_batch_of_another_shape_is_a_bug_of_ours() -> None:
    class Strict:
        def run(self, images: Array) -> dict[str, Array]:
            raise AssertionError("not the fixed shape")

    error = raised(Run([Step(0, 0, 8)], Strict()))
    assert (type(error), str(error)) == (AssertionError, "not the fixed shape")


def test_the_first_run_of_each_stream_is_the_warm_up() -> None:
    """A batch without a good picture is not run, and warms up nothing; its pictures have their rows before the end, though."""
    bad = frozenset(range(4))  # with one loader their batch comes first
    run = Run([Step(0, 0, 40)], FakeSession(), streams=2, bad=bad, meter=Meter(2), loaders=1).run()
    counted = run.meter.snapshot()
    assert counted.runs.total() == 9 - 2
    assert {"infer", "warm_up"} <= set(counted.seconds)
    assert run.meter.warm_up is not None
    assert 8 <= run.meter.warm_up.pictures <= 40, "one stream may have run more batches before the other begins"
    assert run.meter.warm_up.pictures % 4 == 0


def raised(run: Run) -> BaseException:
    """What run() raises, within a time in which nothing can be stuck."""
    caught: list[BaseException] = []

    def act() -> None:
        try:
            run.run()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    (error,) = caught
    return error


def test_an_exception_in_publish_is_raised_and_loading_stops() -> None:
    has_stopped = threading.Event()

    class HeldUp(FakeSession):
        """After so many runs that a step is whole, none begins before the error has come."""

        def run(self, images: Array) -> dict[str, Array]:
            if len(self.runs) >= 8:
                assert has_stopped.wait(PATIENCE_S)
            return super().run(images)

    def publish(_: Any) -> None:
        raise OSError(28, "No space left on device")

    steps = [Step(0, start, start + 8) for start in range(0, 8000, 8)]
    run = Run(steps, HeldUp(), publish=publish)
    assert str(raised(run)) == "[Errno 28] No space left on device"
    has_stopped.set()
    time.sleep(0.1)
    assert len(run.session.runs) < 1000


@pytest.mark.parametrize("where", ["load", "to_input"])
def test_a_bug_of_ours_is_raised_not_turned_into_rows(where: str) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a bug of ours")

    error = raised(Run([Step(0, 0, 800)], FakeSession(), **{where: fails}))
    assert isinstance(error, ZeroDivisionError)


def test_stop_leaves_unfinished_steps_to_the_caller() -> None:
    run = Run([Step(0, 0, 8), Step(0, 8, 8000)], FakeSession(seconds=0.005), streams=1, loaders=1)  # the first step comes first

    def publish(rows: StepRows) -> None:
        run.published.append(rows)
        run.source.stop()

    run.publish = publish
    run.run()
    assert [rows.step for rows in run.published] == [Step(0, 0, 8)]
    finished = run.opened[-1].finished_prefix()
    assert finished % 4 == 0
    assert 0 <= finished < 7992
    check_rows(run.published[0], {})


def test_steps_come_from_a_feed_until_it_is_closed() -> None:
    feed = StepFeed()
    feed.put(Step(0, 0, 4))
    threading.Timer(0.05, lambda: (feed.put(Step(0, 4, 9)), feed.close())).start()
    run = Run(feed, FakeSession()).run()
    assert sorted(rows.step for rows in run.published) == [Step(0, 0, 4), Step(0, 4, 9)]


def test_synthetic_steps_are_counted() -> None:
    images = np.ones((4, 2, 2, 3), np.uint8)
    source = SyntheticLoader([Step(0, 0, 40), Step(0, 40, 80)], new_rows=Tally, batch=images)
    published: list[Tally] = []
    session: Any = FakeSession()
    run_steps(source, session, to_input=lambda x: x, marks=InFlight(0, 3).streams, meter=Meter(), publish=published.append)
    assert sorted(rows.step for rows in published) == [Step(0, 0, 40), Step(0, 40, 80)]
    assert [rows.finished_prefix() for rows in published] == [40, 40]
    assert Tally(Step(0, 0, 5)).finished_prefix() == 0
    assert len(session.runs) == 20


# -- with a real network -------------------------------------------------------------------------------------------------


def colour_rows(graph: Any, folder: Path, colours: list[tuple[int, int, int]]) -> StepRows:
    """The rows of pictures of these colours through a graph of batch 4."""
    session = Session(SessionSpec(save(graph, folder), "cpu", "fp32", 2, 1), ["logits", "embedding"])
    published: list[StepRows] = []
    wanted = task("topk", "embedding", top_k=1, num_classes=len(COLOURS))

    def load(found: Record, out: Array) -> Facts:
        out[:] = colours[found.number]
        return Facts("PNG", 1, SIZE, SIZE)

    def records(step: Step) -> Iterator[Record]:
        return (record(n) for n in range(step.start, step.end))

    in_flight = InFlight(2, 2)
    source = Loader([Step(0, 0, len(colours))], records=records, new_rows=lambda step: StepRows(step, wanted, 4), load=load,
                    batch_shape=session.batch_shape, marks=in_flight.loaders, num_streams=2, meter=Meter())  # fmt: skip
    run_steps(source, session, to_input=lambda x: x, marks=in_flight.streams, meter=Meter(), publish=published.append)
    return published[0]


PALETTE = list(COLOURS.values())
PICTURES = [PALETTE[1], MARKER, PALETTE[2], PALETTE[3], PALETTE[4], PALETTE[5]]


def test_a_graph_that_fails_on_one_picture(tmp_path: Path) -> None:
    rows = colour_rows(raises_on_marker(4), tmp_path, PICTURES)
    assert rows.class_ids_SK is not None
    assert list(rows.errors) == [1]
    assert rows.errors[1][0] == "infer"
    assert "out of data bounds" in rows.errors[1][1]
    assert [int(k) for i, k in enumerate(rows.class_ids_SK[:, 0]) if i != 1] == [1, 2, 3, 4, 5]
    assert not rows.non_finite


def test_a_graph_that_overflows_on_one_picture(tmp_path: Path) -> None:
    rows = colour_rows(overflows_on_marker(4), tmp_path, PICTURES)
    assert rows.class_ids_SK is not None
    assert (rows.errors, rows.non_finite) == ({}, {1})
    assert np.isposinf(rows.saved["embedding"][1]).all()
    assert [int(k) for i, k in enumerate(rows.class_ids_SK[:, 0]) if i != 1] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("colour", ["white", "black"])
def test_c01_an_output_that_grows_costs_the_picture_and_its_neighbours_keep_their_rows(colour: str, tmp_path: Path) -> None:
    """Black is also what fills the last batch, and what the network is warmed up with."""
    guilty = COLOURS[colour]
    colours = [PALETTE[1], guilty, PALETTE[2], PALETTE[3], PALETTE[4], PALETTE[5]]
    rows = colour_rows(grows_on(4, guilty), tmp_path, colours)
    assert rows.class_ids_SK is not None
    assert rows.errors == {
        1: ("infer", "embedding has the shape [4, 6], its graph declares [4, 3]: its size depends on the pictures")
    }
    for number in (0, 2, 3, 4, 5):
        assert rows.class_ids_SK[number, 0] == PALETTE.index(colours[number])
        np.testing.assert_allclose(rows.saved["embedding"][number], np.float32(colours[number]) / 255, atol=1e-6)


@pytest.mark.parametrize("colour", ["white", "black"])
def test_c01_pictures_that_all_have_another_size_are_all_error_rows(colour: str, tmp_path: Path) -> None:
    rows = colour_rows(grows_on(4, COLOURS[colour]), tmp_path, [COLOURS[colour]] * 9)
    assert [rows.errors[number][0] for number in range(9)] == ["infer"] * 9
