"""supervisor.py with fake workers: hand-over, replacement, bisection, refusal and the end after a signal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference import supervisor
from inference.cores import ThreadPlan
from inference.errors import RunError
from inference.results import split_step
from inference.supervisor import Supervisor
from inference.types import Step
from tests.commands import living

FAKE_WORKER = Path(__file__).parents[1] / "fake_worker.py"
CORES = tuple(sorted(os.sched_getaffinity(0)))


class Launch:
    """A supervisor over fake workers; `events` are (worker, event) as they were told."""

    def __init__(self, folder: Path, workers: int, steps: list[Step], *, own_partition: bool = False, **run: Any) -> None:
        self.folder, self.steps = folder, steps
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.rates: list[float] = []
        self.on_event: Callable[[int, dict[str, Any]], None] = lambda _worker, _event: None
        (folder / "run.json").write_text(json.dumps(run))
        plan = ThreadPlan(workers, 1, 1, 1, tuple((CORES[i % len(CORES)],) for i in range(workers)))
        self.supervisor = Supervisor(
            folder / "run.json",
            plan,
            batch_size=2,
            make_steps=self.make_steps,
            on_event=self.note,
            is_published=lambda step: False,
            own_partition=own_partition,
        )

    def make_steps(self, rate: float) -> list[Step]:
        self.rates.append(rate)
        return self.steps

    def note(self, worker: int, event: dict[str, Any]) -> None:
        self.events.append((worker, event))
        self.on_event(worker, event)

    def run(self) -> Launch:
        self.supervisor.run()
        return self

    @property
    def published(self) -> list[int]:
        """Record numbers that have a row, in order."""
        parts = [path.name.split("-") for path in self.folder.glob("part-*")]
        return sorted(number for _, _, start, end in parts for number in range(int(start), int(end)))

    @property
    def pids(self) -> list[int]:
        return [event["pid"] for _, event in self.events if event["event"] == "ready"]

    def log(self, worker: int) -> str:
        return (self.folder / f"worker-{worker}.log").read_text()


@pytest.fixture(autouse=True)
def fake_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter that the supervisor starts runs the fake instead."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {FAKE_WORKER} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(supervisor.sys, "executable", str(python))


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    """After every test: signal handlers and affinity as before, no child and no descriptor left."""
    monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.6)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert tuple(sorted(os.sched_getaffinity(0))) == CORES
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1, "the selector goes with its owner"


def test_every_step_is_published_once(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 100), 7)).run()
    assert launch.published == list(range(100))
    kinds = Counter(event["event"] for _, event in launch.events)
    assert kinds == {"ready": 2, "step": 15, "end": 2}
    assert len(launch.rates) == 1, "steps are planned once, by the first worker that is ready"
    assert launch.rates[0] in (50.0, 51.0)
    assert launch.supervisor.replaced == []
    assert launch.supervisor.signal is None
    assert launch.supervisor.busy_workers() == []


def test_workers_run_on_their_cores_with_quiet_libraries(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, [Step(0, 0, 4)]).run()
    for worker in (0, 1):
        assert launch.log(worker) == f"started with cores [{CORES[worker % len(CORES)]}] 1\n"


def test_a_worker_with_its_own_partition_gets_only_that(tmp_path: Path) -> None:
    steps = [Step(worker, i * 10 + worker * 100, i * 10 + 10 + worker * 100) for i in range(3) for worker in (0, 1)]
    launch = Launch(tmp_path, 2, steps, own_partition=True).run()
    taken = Counter((worker, event["step"][0]) for worker, event in launch.events if event["event"] == "step")
    assert taken == {(0, 0): 3, (1, 1): 3}


def test_no_steps(tmp_path: Path) -> None:
    assert Launch(tmp_path, 2, []).run().published == []


def test_a_killed_worker_is_replaced_and_its_steps_run_again(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 60), 5), slow_s=0.02)
    victims: list[int] = []

    def kill_once(worker: int, event: dict[str, Any]) -> None:
        if event["event"] == "step" and not victims:
            victims.append(worker)
            os.kill(next(e["pid"] for w, e in launch.events if w == worker and e["event"] == "ready"), signal.SIGKILL)

    launch.on_event = kill_once
    launch.run()
    assert launch.published == list(range(60))
    assert launch.supervisor.replaced == [f"worker {victims[0]} ended by signal 9 (SIGKILL)"]
    assert (victims[0], {"event": "replaced", "how": "signal 9 (SIGKILL)", "by_another": True}) in launch.events
    assert len(launch.pids) == 3


def test_a_deadly_record_costs_its_own_row(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(3, 0, 32), 8), deadly=[13]).run()
    assert launch.published == list(range(32))
    assert (tmp_path / "part-3-13-14").read_text().endswith("ended by signal 9 (SIGKILL)")
    assert len(launch.supervisor.replaced) == 3 + 3
    assert [path.name for path in tmp_path.glob("part-*") if path.read_text()] == ["part-3-13-14"]


def test_a_worker_that_cannot_start_ends_the_launch_with_the_end_of_its_log(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, [Step(0, 0, 4)], die_at_start=True)
    with pytest.raises(
        RunError, match=r"workers die without getting anything done: worker 0 ended by exit code 7; the end of its log: "
    ):
        launch.run()
    assert launch.log(0).count("ImportError") == 3
    assert str(launch.supervisor.refusal).endswith("ImportError: libtbb.so.12")


def test_a_refusal_ends_the_launch_with_its_words_and_exit_code(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 4000), 2), refuse=[1], slow_s=0.01)
    with pytest.raises(RunError, match="--device openvino cannot run it") as caught:
        launch.run()
    assert caught.value.exit_code == 2
    assert len(launch.published) < 4000
    assert not living(launch.pids)


def test_the_launcher_itself_may_refuse(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 4000), 2), slow_s=0.01)
    launch.on_event = lambda _, event: launch.supervisor.refuse(RunError("too many")) if event["event"] == "step" else None
    with pytest.raises(RunError, match="too many"):
        launch.run()
    assert len(launch.published) < 40


def test_an_exception_of_the_launcher_leaves_no_worker_behind(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 4000), 2), slow_s=0.01)

    def full_disk(_worker: int, event: dict[str, Any]) -> None:
        if event["event"] == "step":
            raise OSError(28, "No space left on device")

    launch.on_event = full_disk
    with pytest.raises(OSError, match="No space left"):
        launch.run()
    assert not living(launch.pids)


def signal_at_first_step(launch: Launch, *numbers: signal.Signals) -> float:
    """Run; send the signals to this process when the first step is published. Returns seconds from the first one to the end."""
    sent: list[float] = []

    def send(_worker: int, event: dict[str, Any]) -> None:
        if event["event"] == "step" and not sent:
            sent.append(time.monotonic())
            for delay, number in enumerate(numbers):
                threading.Timer(0.1 * delay, os.kill, (os.getpid(), number)).start()

    launch.on_event = send
    launch.run()
    return time.monotonic() - sent[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_launch(tmp_path: Path, number: signal.Signals) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 4000), 2), slow_s=0.02)
    assert signal_at_first_step(launch, number) < 0.5, "nobody had to be killed"
    assert launch.supervisor.signal == number
    assert [event["event"] for _, event in launch.events].count("end") == 2
    assert 0 < len(launch.published) < 4000
    assert launch.supervisor.replaced == []
    assert not living(launch.pids)


def test_workers_that_do_not_stop_are_killed_when_the_grace_is_over(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 4000), 2), deaf=True, slow_s=0.02)
    assert 0.5 < signal_at_first_step(launch, signal.SIGTERM) < 2.5
    assert not living(launch.pids)
    assert launch.supervisor.replaced == []


def test_a_second_signal_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_GRACE_S", 60.0)
    launch = Launch(tmp_path, 2, split_step(Step(0, 0, 4000), 2), deaf=True, slow_s=0.02)
    assert signal_at_first_step(launch, signal.SIGINT, signal.SIGINT) < 2
    assert launch.supervisor.signal == signal.SIGINT
    assert not living(launch.pids)


def test_a_worker_without_its_launcher_ends(tmp_path: Path) -> None:
    """What the fake does as the real one does: the end of stdin is the end of the launcher."""
    (tmp_path / "run.json").write_text("{}")
    reading, writing = os.pipe()
    command = [sys.executable, str(tmp_path / "run.json"), "0", str(writing)]
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reading)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writing], stdout=subprocess.DEVNULL)
        os.close(writing)
        assert json.loads(os.read(reading, 1000))["event"] == "ready"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 1


def test_a_worker_that_ends_too_early_is_replaced_like_a_dead_one(tmp_path: Path) -> None:
    launch = Launch(tmp_path, 1, split_step(Step(0, 0, 12), 3), lazy=[0]).run()
    assert launch.published == list(range(12))
