"""local.py with fake workers: hand-over, replacement, bisection, refusal and the end after a signal."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.engines import EngineOptions, dispatch, worker_handle
from bulkinfer.launch.engines import local as local_engine
from bulkinfer.launch.engines.local import LocalEngine
from bulkinfer.launch.engines.worker_handle import WorkerHandle
from bulkinfer.launch.step_queue import split_step
from bulkinfer.types import Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.protocol import Died, Event, Ready, Recovered, StepDone

from tests.commands import living
from tests.fake_interpreter import write_interpreter
from tests.forms import long

ROOT = Path(__file__).parents[4]
CORES = tuple(sorted(os.sched_getaffinity(0)))
PATIENCE_S = 60.0  # nothing here takes a tenth of it; a machine may be busy
GRACE_S = dispatch.STOP_GRACE_S  # tests change it
MANY = split_step(Step(0, 0, 20_000), 2)  # more steps than are ever run here


class Launch:
    """An engine over fake workers, and its hooks; `events` are (worker, event) as they were told.

    Where the workers are `gated`, the gate is opened as soon as so many are ready.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        steps: list[Step],
        *,
        gate: int = 0,
        own_partition: bool = False,
        stall_s: float = 0,
        **run: Any,
    ) -> None:
        self.folder, self.steps, self.gate = folder, steps, gate
        self.events: list[tuple[int, Event]] = []
        self.rates: list[float] = []
        self.most = sys.maxsize
        self.stop_for: BulkinferError | None = None
        self.react: Callable[[int, Event], BulkinferError | None] = lambda _worker, _event: None
        (folder / "run.json").write_text(json.dumps({"gated": bool(gate), **run}))
        plan = ThreadPlan(workers, 1, 1, 1, tuple((CORES[i % len(CORES)],) for i in range(workers)), (0,) * workers)
        self.engine = LocalEngine(folder / "run.json", plan, self, EngineOptions(2, own_partition, stall_s))

    def make_steps(self, rate: float, num_workers: int) -> list[Step]:
        self.rates.append(rate)
        return self.steps

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        assert set(busy_workers) <= set(range(len(self.engine._plan.affinity)))
        self.events.append((worker, event))
        if self.gate and len(self.told(Ready)) >= self.gate:
            self.open_gate()
        return self.react(worker, event)

    def on_progress(self, worker: int, pictures: int) -> None: ...

    def most_records(self) -> int:
        return self.most

    def must_stop(self) -> BulkinferError | None:
        return self.stop_for

    def is_published(self, step: Step) -> bool:
        return (self.folder / f"part-{step.partition}-{step.start}-{step.end}").exists()

    def open_gate(self) -> None:
        (self.folder / "go").touch()

    def open_when_given_up(self) -> None:
        """Let the others work when a worker is not started again."""

        def react(_worker: int, event: Event) -> None:
            if isinstance(event, Died) and not event.by_another:
                self.open_gate()

        self.react = react

    def run(self) -> Launch:
        self.engine.run()
        return self

    def told(self, kind: type[Any]) -> list[Any]:
        """All events of one kind."""
        return [event for _, event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> Counter[str]:
        return Counter(type(event).__name__ for _, event in self.events)

    @property
    def published(self) -> list[int]:
        """Record numbers that have a row, in order."""
        parts = [path.name.split("-") for path in self.folder.glob("part-*")]
        return sorted(number for _, _, start, end in parts for number in range(int(start), int(end)))

    @property
    def pids(self) -> list[int]:
        return [event.pid for event in self.told(Ready)]

    def log(self, worker: int) -> str:
        path = self.folder / f"worker-{worker}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture(autouse=True)
def fake_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter that the engine starts runs the fake instead."""
    monkeypatch.setattr(worker_handle.sys, "executable", str(write_interpreter(tmp_path)))


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test: signal handlers and affinity as before, no child and no descriptor left."""
    monkeypatch.setattr(dispatch, "STOP_GRACE_S", PATIENCE_S)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    gc.collect()  # descriptors of earlier tests are closed now, and not while one of these runs
    before = descriptors()
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert tuple(sorted(os.sched_getaffinity(0))) == CORES
    gc.collect()
    assert descriptors() - before == set()


def descriptors() -> set[tuple[str, str]]:
    """Number and target of all that are open; a number that another file has got is another one."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def blame_only(monkeypatch: pytest.MonkeyPatch, is_meant: Callable[[WorkerHandle], bool]) -> None:
    """Only workers that are meant to stall do: another may be slow because the machine is busy."""
    plain = WorkerHandle.is_stalled

    def is_stalled(worker: WorkerHandle, watched_s: float, timeout_s: float) -> bool:
        return is_meant(worker) and plain(worker, watched_s, timeout_s)

    monkeypatch.setattr(WorkerHandle, "is_stalled", is_stalled)


def test_every_step_is_published_once(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 100), 7), gate=2).run()
    assert launch.published == list(range(100))
    assert launch.kinds == {"Ready": 2, "StepDone": 15, "Ended": 2}
    assert len(launch.rates) == 1, "steps are planned once, by the first worker that is ready"
    assert launch.rates[0] in (50.0, 51.0)
    assert launch.engine.replaced == []
    assert launch.engine.signal is None


def test_workers_run_on_their_cores_with_quiet_libraries(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 8), 2), gate=2).run()
    for worker in (0, 1):
        assert launch.log(worker) == f"started with cores [{CORES[worker % len(CORES)]}] 1\n"


def test_a_worker_with_its_own_partition_gets_only_that(tmp_path: Path) -> None:
    steps = [Step(worker, i * 10 + worker * 100, i * 10 + 10 + worker * 100) for i in range(3) for worker in (0, 1)]
    launch = Launch(tmp_path, 2, steps, own_partition=True).run()
    taken = Counter((worker, event.step.partition) for worker, event in launch.events if isinstance(event, StepDone))
    assert taken == {(0, 0): 3, (1, 1): 3}


def test_steps_have_the_length_that_the_launch_wants_at_the_moment(tmp_path: Path) -> None:
    """A worker holds two steps before the first one is done: the third one is the first of another length."""
    launch = Launch(tmp_path, 1, [Step(0, 0, 50), Step(1, 7, 9)])
    launch.most = 4

    def lengthen(_worker: int, event: Event) -> None:
        launch.most = 20 if isinstance(event, StepDone) else launch.most

    launch.react = lengthen
    launch.run()
    steps = [event.step for event in launch.told(StepDone)]
    assert steps == [Step(0, 0, 4), Step(0, 4, 8), Step(0, 8, 28), Step(0, 28, 48), Step(0, 48, 50), Step(1, 7, 9)]


def test_only_who_takes_over_from_a_dead_worker_runs_zeros_first(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 8), 2), deadly=[3]).run()
    assert launch.kinds["Died"] >= 2
    started = [line for line in launch.log(0).splitlines() if line.startswith("started with")]
    assert [line.endswith("zeros first") for line in started] == [False] + [True] * (len(started) - 1)
    assert len(started) == launch.kinds["Died"] + 1


def test_no_steps(tmp_path: Path) -> None:
    assert Launch(tmp_path, 2, []).run().published == []


# -- deaths --------------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_its_steps_run_again(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 60), 5), gate=2, slow_s=0.1)
    victims: list[int] = []

    def kill_once(worker: int, event: Event) -> None:
        if isinstance(event, StepDone) and not victims:
            victims.append(worker)
            os.kill(next(e.pid for w, e in launch.events if w == worker and isinstance(e, Ready)), signal.SIGKILL)

    launch.react = kill_once
    launch.run()
    assert launch.published == list(range(60))
    assert launch.engine.replaced == [f"worker {victims[0]} ended by signal 9 (SIGKILL)"]
    assert (victims[0], Died("ended by signal 9 (SIGKILL)", True)) in launch.events


def test_a_deadly_record_costs_its_own_row(tmp_path: Path) -> None:
    """The command that gives it up reaches the worker with what happened, and the worker leaves it alone."""
    launch = Launch(tmp_path, 2, split_step(Step(3, 0, 32), 8), deadly=[13]).run()
    assert launch.published == list(range(32))
    given_up = (tmp_path / "part-3-13-14").read_text()
    assert given_up.startswith("every process that touched this record died; the last: worker ")
    assert given_up.endswith("ended by signal 9 (SIGKILL)")
    assert [path.name for path in tmp_path.glob("part-*") if path.read_text()] == ["part-3-13-14"]
    assert [event.stages for event in launch.told(StepDone) if event.step == Step(3, 13, 14)] == [{"infer": 1}]
    assert len(launch.engine.replaced) == 3, "in company, and twice alone"


def test_a_record_that_a_worker_hangs_on_costs_its_own_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blame_only(monkeypatch, lambda worker: worker.in_flight.running() == [Step(0, 13, 14)])
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 32), 8), hanging=[13], stall_s=0.5).run()
    assert launch.published == list(range(32))
    given_up = (tmp_path / "part-0-13-14").read_text()
    assert given_up.startswith("every process that touched this record died; the last: worker ")
    assert given_up.endswith("ended for making no progress in 0.5 s")
    assert [path.name for path in tmp_path.glob("part-*") if path.read_text()] == ["part-0-13-14"]
    assert len(launch.engine.replaced) == 3
    assert not living(launch.pids)


def test_a_worker_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blame_only(monkeypatch, lambda worker: worker.ended)
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 12), 3), hang_at_end=[0], stall_s=0.5).run()
    assert launch.published == list(range(12))
    assert launch.engine.replaced == ["worker 0 ended for making no progress in 0.5 s after its last step; nothing was lost"]
    assert not living(launch.pids)


@long
def test_a_worker_that_hangs_before_it_is_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses no time of a processor. After the third start it is given up, and the other one does all."""
    monkeypatch.setattr(worker_handle, "_START_S", 1.0)
    blame_only(monkeypatch, lambda worker: worker.index == 1)
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 20), 2), gated=True, never_ready=[1], stall_s=1.0)
    launch.open_when_given_up()
    launch.run()
    assert launch.published == list(range(20))
    assert launch.engine.replaced == ["worker 1 ended for making no progress in 1 s"] * 3
    assert not living(launch.pids)


def test_who_has_nothing_to_do_does_not_stall(tmp_path: Path) -> None:
    """One worker has both steps in hand and takes its time, record by record; the other waits."""
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 8), 4), slow_records_s=0.4, stall_s=2.5).run()
    assert launch.published == list(range(8))
    assert launch.engine.replaced == []


def test_time_in_which_the_launcher_was_stopped_is_no_stall(tmp_path: Path) -> None:
    handle = WorkerHandle(0, Any, 0, InFlight(1, 1), tmp_path)  # type: ignore[arg-type]
    handle.ready, handle.held = True, [Step(0, 0, 4)]
    assert not handle.is_stalled(9.0, 10.0), "it is seen for the first time"
    assert not handle.is_stalled(9.0, 10.0)
    handle.in_flight.loaders[0].set(0, 1, 2)
    assert not handle.is_stalled(9.0, 10.0), "it began a record"
    assert not handle.is_stalled(9.0, 10.0)
    assert handle.is_stalled(1.0, 10.0)
    handle.held = []
    assert not handle.is_stalled(99.0, 10.0)


@pytest.mark.parametrize("lost", [7, 29])
def test_a_published_step_whose_report_was_lost_is_not_run_again(tmp_path: Path, lost: int) -> None:
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 30), 3), lost=[lost]).run()
    step = Step(0, lost // 3 * 3, lost // 3 * 3 + 3)
    assert launch.published == list(range(30))
    assert launch.told(Recovered) == [Recovered(step)]
    assert step not in [event.step for event in launch.told(StepDone)]
    assert launch.kinds["StepDone"] == 9
    assert launch.engine.replaced == ["worker 0 ended by signal 9 (SIGKILL)"]


def test_a_worker_that_crashes_after_its_last_step_is_only_noted(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 12), 3), crash_at_end=[0]).run()
    assert launch.published == list(range(12))
    assert launch.kinds == {"Ready": 1, "StepDone": 4, "Ended": 1}
    assert launch.engine.replaced == ["worker 0 ended by signal 11 (SIGSEGV) after its last step; nothing was lost"]


def test_a_worker_that_ends_too_early_is_replaced_like_a_dead_one(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 12), 3), lazy=[0]).run()
    assert launch.published == list(range(12))
    assert set(launch.engine.replaced) == {"worker 0 ended by exit code 0"}


def test_a_worker_that_cannot_start_ends_the_launch_with_the_end_of_its_log(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, [Step(0, 0, 4)], die_at_start=[0])
    words = r"workers die without getting anything done: worker 0 ended by exit code 7; the end of its log: .*"
    with pytest.raises(RunError, match=words + r"ImportError: libtbb\.so\.12$"):
        launch.run()
    assert launch.log(0).count("ImportError") == 3
    assert launch.kinds == {"Died": 2}


def test_without_one_that_does_not_start_the_others_go_on(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 20), 2), gated=True, die_at_start=[1])
    launch.open_when_given_up()
    launch.run()
    assert launch.published == list(range(20))
    assert [event for event in launch.events if isinstance(event[1], Died)] == [
        (1, Died("ended by exit code 7", by_another)) for by_another in (True, True, False)
    ]
    assert launch.engine.replaced == ["worker 1 ended by exit code 7"] * 3


def test_nobody_else_can_run_the_partition_of_one_that_does_not_start(tmp_path: Path) -> None:
    steps = [Step(worker, start, start + 5) for start in (0, 5) for worker in (0, 1)]
    launch = Launch(tmp_path, 2, steps, own_partition=True, gated=True, die_at_start=[1])
    with pytest.raises(RunError, match=r"worker 1 ended by exit code 7; the end of its log: .*libtbb"):
        launch.run()
    assert launch.published == []
    assert not living(launch.pids)


def test_deaths_without_any_progress_end_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_DEATHS_WITHOUT_PROGRESS", 2)
    launch = Launch(tmp_path, 1, [Step(0, 0, 64)], deadly=list(range(64)))
    with pytest.raises(RunError, match=r"workers die without getting anything done: worker 0 ended by signal 9 \(SIGKILL\)"):
        launch.run()
    assert launch.kinds == {"Ready": 3, "Died": 2}


# -- refusals ------------------------------------------------------------------------------------------------------------


def test_a_refusal_is_wrong_use_while_nothing_is_done(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, MANY, gated=True, refuse=[1])
    with pytest.raises(UsageError, match="--device openvino cannot run it") as caught:
        launch.run()
    assert caught.value.exit_code == 2
    assert launch.published == []
    assert not living(launch.pids)


def test_a_refusal_is_a_failed_run_once_something_is_published(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, MANY, refuse_late=[0])
    with pytest.raises(RunError, match="the manifest was replaced") as caught:
        launch.run()
    assert caught.value.exit_code == 1
    assert launch.published == [0, 1]
    assert not living(launch.pids)


def test_the_launch_itself_may_refuse(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, MANY)
    launch.react = lambda _, event: RunError("too many") if isinstance(event, StepDone) else None
    with pytest.raises(RunError, match="too many"):
        launch.run()
    assert len(launch.published) <= 4, "what the worker had in hand"
    assert launch.engine.replaced == []


def test_an_exception_of_the_launch_leaves_no_worker_behind(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, MANY, gate=2)

    def full_disk(_worker: int, event: Event) -> None:
        if isinstance(event, StepDone):
            raise OSError(28, "No space left on device")

    launch.react = full_disk
    with pytest.raises(OSError, match="No space left"):
        launch.run()
    assert len(launch.pids) == 2
    assert not living(launch.pids)


# -- the end -------------------------------------------------------------------------------------------------------------


def until(is_so: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)


def signal_at_first_step(launch: Launch, *numbers: signal.Signals) -> float:
    """Run; send the signals to this process from the first published step on. Returns seconds from the first one to the end."""
    sent: list[float] = []

    def send_all() -> None:
        sent.append(time.monotonic())
        for number in numbers:
            os.kill(os.getpid(), number)
            until(lambda: launch.engine.signal is not None)

    def react(_worker: int, event: Event) -> None:
        if isinstance(event, StepDone) and not sender.ident:
            sender.start()

    sender = threading.Thread(target=send_all)
    launch.react = react
    launch.run()
    took_s = time.monotonic() - sent[0]
    sender.join()
    return took_s


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_launch(tmp_path: Path, number: signal.Signals) -> None:
    launch = Launch(tmp_path, 2, MANY, gate=2, slow_s=0.02)
    assert signal_at_first_step(launch, number) < PATIENCE_S / 2, "nobody had to be killed"
    assert launch.engine.signal == number
    assert launch.kinds["Ended"] == 2
    assert 0 < len(launch.published) < 20_000
    assert launch.engine.replaced == []
    assert not living(launch.pids)


def test_workers_that_do_not_stop_are_killed_when_the_grace_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert GRACE_S <= 4, "of the five seconds that are promised one is left to end everything"
    monkeypatch.setattr(dispatch, "STOP_GRACE_S", 0.6)
    launch = Launch(tmp_path, 2, MANY, gate=2, deaf=True, slow_s=0.02)
    assert signal_at_first_step(launch, signal.SIGTERM) > 0.6
    assert "Ended" not in launch.kinds
    assert not living(launch.pids)
    assert launch.engine.replaced == []


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, MANY, gate=2, deaf=True, slow_s=0.02)
    assert signal_at_first_step(launch, signal.SIGINT, signal.SIGINT) < PATIENCE_S / 2
    assert launch.engine.signal == signal.SIGINT
    assert "Ended" not in launch.kinds
    assert not living(launch.pids)


def test_nobody_waits_for_a_worker_that_is_not_ready_when_all_is_published(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 20), 2), never_ready=[1]).run()
    assert launch.published == list(range(20))
    assert launch.kinds == {"Ready": 1, "StepDone": 10, "Ended": 1}
    assert launch.engine.replaced == []


def test_a_stop_does_not_wait_for_workers_that_are_not_ready(tmp_path: Path) -> None:
    launch, sent = Launch(tmp_path, 2, MANY, never_ready=[0, 1]), list[float]()

    def interrupt() -> None:
        until(lambda: bool(launch.log(0) and launch.log(1)))
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    launch.run()
    sender.join()
    assert time.monotonic() - sent[0] < PATIENCE_S / 2
    assert (launch.engine.signal, launch.events, launch.engine.replaced) == (signal.SIGINT, [], [])


def test_a_launch_that_must_stop_is_stopped_without_any_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate stays shut: workers wait and report nothing."""
    monkeypatch.setattr(local_engine, "_LOOK_S", 0.1)
    launch = Launch(tmp_path, 1, [Step(0, 0, 4)], gate=2)
    launch.stop_for = RunError("the lock is gone")
    started = time.monotonic()
    with pytest.raises(RunError, match="the lock is gone"):
        launch.run()
    assert time.monotonic() - started < 60
    assert not list(tmp_path.glob("part-*"))
