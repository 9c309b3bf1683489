"""inline.py: the same worker without a process around it; how it ends early."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.engines import ENGINES, EngineOptions, make_engine, refusal
from bulkinfer.launch.engines import inline as inline_engine
from bulkinfer.launch.engines.inline import InlineEngine
from bulkinfer.launch.run import write_run
from bulkinfer.launch.step_queue import split_step
from bulkinfer.types import Facts, Record, Step
from bulkinfer.worker import process as worker_process
from bulkinfer.worker.loader import load_record
from bulkinfer.worker.protocol import Ended, Event, Ready, Refused, StepDone

from tests.launches import launch_of, plan_of


class Hooks:
    """Notes what it is told."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.most = sys.maxsize
        self.events: list[Event] = []
        self.react: Callable[[Event], BulkinferError | None] = lambda _: None

    def make_steps(self, rate: float, num_workers: int) -> list[Step]:
        assert rate == 0, "the first batches warm up"
        return self.steps

    def on_event(self, worker: int, event: Event, busy_workers: list[int]) -> BulkinferError | None:
        assert (worker, busy_workers) == (0, [0])
        self.events.append(event)
        return self.react(event)

    def on_progress(self, worker: int, pictures: int) -> None: ...

    def most_records(self) -> int:
        return self.most

    def must_stop(self) -> None: ...

    def is_published(self, step: Step) -> bool:
        raise AssertionError("nothing dies alone here")

    @property
    def done(self) -> list[Step]:
        return sorted(event.step for event in self.events if isinstance(event, StepDone))


def engine_for(launch: Launch, hooks: Hooks) -> InlineEngine:
    engine = make_engine("inline", write_run(launch), plan_of(), hooks, EngineOptions(4))
    assert isinstance(engine, InlineEngine)
    return engine


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_every_step_is_published(tmp_path: Path) -> None:
    launch, hooks = launch_of(tmp_path, batches_per_step=1), Hooks(split_step(Step(0, 0, 10), 4))
    engine = engine_for(launch, hooks)
    engine.run()
    assert [type(event) for event in hooks.events] == [Ready, StepDone, StepDone, StepDone, Ended]
    assert hooks.done == hooks.steps
    assert (engine.signal, engine.replaced) == (None, [])
    assert (launch.log_dir / "worker-0.log").read_text().count(" images/sec.") == 2, "none of the warm-up"
    assert len((launch.log_dir / "worker-0.jsonl").read_text().splitlines()) == 6


def test_steps_have_the_length_that_the_launch_wants_at_the_moment(tmp_path: Path) -> None:
    launch, hooks = launch_of(tmp_path, photos=40), Hooks([Step(0, 0, 40)])
    hooks.most = 4

    def lengthen(event: Event) -> None:
        hooks.most = 12 if isinstance(event, StepDone) else hooks.most

    hooks.react = lengthen
    engine_for(launch, hooks).run()
    assert hooks.done == [Step(0, 0, 4), Step(0, 4, 8), Step(0, 8, 20), Step(0, 20, 32), Step(0, 32, 40)]
    assert sum(event.warm_up for event in hooks.events if isinstance(event, StepDone)) == 4, "one batch of one stream"


def test_the_launch_may_refuse_at_once(tmp_path: Path) -> None:
    hooks = Hooks(split_step(Step(0, 0, 10), 4))
    hooks.react = lambda event: RunError("too old") if isinstance(event, Ready) else None
    with pytest.raises(RunError, match="too old"):
        engine_for(launch_of(tmp_path, batches_per_step=1), hooks).run()
    assert [type(event) for event in hooks.events] == [Ready, Ended]


def held_up(engine: InlineEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """From record 8 on nothing is loaded before the engine has stopped its worker."""

    def has_stopped() -> bool:
        source: Any = engine._worker._source  # its threads load before the worker knows it
        return source is not None and source._stopping

    def load(record: Record, recipe: Any, limits: Any, out_HWC: np.ndarray, meter: Any) -> Facts:
        deadline = time.monotonic() + 60
        while record.number >= 8 and not has_stopped() and time.monotonic() < deadline:
            time.sleep(0.002)
        return load_record(record, recipe, limits, out_HWC, meter)

    monkeypatch.setattr(worker_process, "load_record", load)


@pytest.mark.parametrize("way", ["refusal", "SIGINT", "SIGTERM"])
def test_a_stop_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    hooks = Hooks(split_step(Step(0, 0, 40), 4))
    engine = engine_for(launch_of(tmp_path, photos=40, batches_per_step=1), hooks)
    held_up(engine, monkeypatch)

    def react(event: Event) -> BulkinferError | None:
        if not isinstance(event, StepDone) or len(hooks.done) > 1:
            return None
        if way == "refusal":
            return RunError("too many")
        os.kill(os.getpid(), signal.Signals[way])
        return None

    hooks.react = react
    if way == "refusal":
        with pytest.raises(RunError, match="too many"):
            engine.run()
        assert engine.signal is None
    else:
        engine.run()
        assert engine.signal == signal.Signals[way]
    assert 1 <= len(hooks.done) < len(hooks.steps)
    assert isinstance(hooks.events[-1], Ended)


def test_a_refusal_of_the_worker_is_raised(tmp_path: Path) -> None:
    launch, hooks = launch_of(tmp_path, batches_per_step=1), Hooks([])
    engine = engine_for(launch, hooks)
    graph = launch.job.model.graph
    graph.write_bytes(graph.read_bytes() + b"x")
    with pytest.raises(RunError, match=r"model_4\.onnx is not the graph of model_4\.json"):
        engine.run()
    assert hooks.events == []


def test_a_second_signal_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(inline_engine.os, "_exit", codes.append)
    hooks = Hooks([])

    def press_twice(event: Event) -> None:
        if isinstance(event, Ready):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)

    hooks.react = press_twice
    engine = engine_for(launch_of(tmp_path, batches_per_step=1), hooks)
    engine.run()
    assert codes == [143]


# -- engine.py -----------------------------------------------------------------------------------------------------------


def test_engines_are_found_by_name(tmp_path: Path) -> None:
    run_file = write_run(launch_of(tmp_path, batches_per_step=1))
    for name in ENGINES:
        engine: Any = make_engine(name, run_file, plan_of(), Hooks([]), EngineOptions(4))
        assert (engine.signal, engine.replaced, engine.nodes, engine.run.__self__) == (None, [], {}, engine)
        if isinstance(engine, InlineEngine):
            engine._log.close()
            engine._worker._log.close()


@pytest.mark.parametrize(
    ("code", "started", "kind"),
    [(2, False, UsageError), (2, True, RunError), (1, False, RunError), (1, True, RunError)],
)
def test_a_refusal_is_wrong_use_only_before_anything_was_done(code: int, started: bool, kind: type[BulkinferError]) -> None:
    error = refusal(Refused("a sentence", code), started=started)
    assert (type(error), str(error)) == (kind, "a sentence")
