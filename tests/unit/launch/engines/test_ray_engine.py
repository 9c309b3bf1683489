"""ray_engine.py over a cluster that is none, with fake workers: nodes that come and go, workers that die, the end."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.host.cores import CoreBudget, HostPlan
from bulkinfer.host.versions import versions
from bulkinfer.launch.engines import EngineOptions, dispatch, ray_engine, ray_hosts, worker_handle
from bulkinfer.launch.engines.ray_cluster import Node
from bulkinfer.launch.engines.ray_engine import RayEngine
from bulkinfer.launch.engines.ray_node import Facts, Question
from bulkinfer.launch.run import write_run
from bulkinfer.launch.step_queue import split_step
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Died, Event, Ready, Recovered, StepDone

from tests.commands import living
from tests.fake_interpreter import write_interpreter
from tests.fake_ray import FakeCluster, UnreachableError, connected_to
from tests.launches import launch_of, plan_of

CORES = tuple(sorted(os.sched_getaffinity(0)))


class Launch:
    """An engine on a cluster, and its hooks."""

    def __init__(self, folder: Path, cluster: FakeCluster, steps: list[Step], **options: Any) -> None:
        self.cluster, self.steps = cluster, steps
        self.run_file = write_run(launch_of(folder, batches_per_step=1))
        self.events: list[tuple[int, Event]] = []
        self.num_workers = 0
        self.react: Callable[[int, Event], None] = lambda _worker, _event: None
        self.engine = RayEngine(self.run_file, plan_of(), self, EngineOptions(2, plan_host=self.plan_host, **options))

    def plan_host(self, budget: CoreBudget, num_gpus: int) -> HostPlan | None:
        """A worker for each core."""
        return HostPlan(replace(plan_of(budget.usable), affinity=((CORES[0],),) * budget.usable), 0.0)

    def make_steps(self, rate: float, num_workers: int) -> list[Step]:
        self.num_workers = num_workers
        return self.steps

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        self.events.append((worker, event))
        self.react(worker, event)
        return None

    def on_progress(self, worker: int, pictures: int) -> None: ...

    def most_records(self) -> int:
        return sys.maxsize

    def must_stop(self) -> BulkinferError | None:
        return None

    def is_published(self, step: Step) -> bool:
        return (self.run_file.parent / f"part-{step.partition}-{step.start}-{step.end}").exists()

    def open_gate(self) -> None:
        (self.run_file.parent / "go").touch()

    def run(self) -> Launch:
        self.engine.run()
        return self

    @property
    def kinds(self) -> Counter[str]:
        return Counter(type(event).__name__ for _, event in self.events)

    @property
    def published(self) -> list[int]:
        parts = [path.name.split("-") for path in self.run_file.parent.glob("part-*")]
        return sorted(number for _, _, start, end in parts for number in range(int(start), int(end)))

    def at_first(self, kind: type[Any], act: Callable[[], None], worker: int | None = None) -> None:
        """Do something at the first event of a kind."""
        done = []

        def react(index: int, event: Event) -> None:
            if isinstance(event, kind) and worker in (None, index) and not done:
                done.append(1)
                act()

        self.react = react

    def go_on_after_a_death(self) -> None:
        """Open the gate when a worker is lost, beside what is done at events already."""
        before = self.react

        def react(worker: int, event: Event) -> None:
            before(worker, event)
            if isinstance(event, Died):
                self.open_gate()

        self.react = react


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Two nodes of one core each, with fake workers."""
    made = FakeCluster(1, 1)
    monkeypatch.setattr(ray_engine, "connected", lambda _address: connected_to(made))
    monkeypatch.setattr(ray_engine, "next_reports", lambda actor, wait_s, then: actor.wait(wait_s, then))
    monkeypatch.setattr(ray_hosts, "_NODES_S", 0.05)
    monkeypatch.setattr(ray_engine, "_LOOK_S", 0.05)
    monkeypatch.setattr(worker_handle.sys, "executable", str(write_interpreter(tmp_path)))
    return made


def disturb(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Give fake workers these fields; see tests/fake_worker.py."""
    plain = ray_hosts.Hosts._write_files

    def write(self: Any, *arguments: Any) -> tuple[Path, Path]:
        run_file, permit = plain(self, *arguments)
        run_file.write_text(json.dumps(json.loads(run_file.read_text()) | fields))
        return run_file, permit

    monkeypatch.setattr(ray_hosts.Hosts, "_write_files", write)


STEPS = split_step(Step(0, 0, 60), 3)


def test_every_step_is_published_once_on_the_workers_of_all_nodes(tmp_path: Path, cluster: FakeCluster) -> None:
    cluster.join(2)
    launch = Launch(tmp_path, cluster, STEPS).run()
    assert launch.published == list(range(60))
    assert (launch.kinds["StepDone"], launch.num_workers, launch.engine.replaced) == (20, 4, [])
    assert [actor.node.id for actor in cluster.actors] == ["n0", "n1", "n2", "n2"], "evenly over the nodes"
    assert not living([actor.pid for actor in cluster.actors])
    assert list(launch.run_file.parent.glob("node-*")) == [], "nothing is left of the nodes"


def test_no_more_workers_than_asked_for(tmp_path: Path, cluster: FakeCluster) -> None:
    launch = Launch(tmp_path, cluster, STEPS, num_devices=1).run()
    assert (launch.published, launch.num_workers, len(cluster.actors)) == (list(range(60)), 1, 1)


@pytest.mark.parametrize("is_known", [True, False], ids=["gone", "unreachable"])
def test_a_node_that_is_lost_gives_its_steps_back(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """The other worker does nothing before: there is work left, however late this one began."""
    disturb(monkeypatch, gated=[0])
    launch = Launch(tmp_path, cluster, STEPS)
    permits = launch.run_file.parent.glob("node-*.permit.json")

    def lose() -> None:
        before = len(list(permits))
        cluster.lose("n1", is_known=is_known)
        assert before == 2

    launch.at_first(StepDone, lose, worker=1)
    launch.go_on_after_a_death()
    launch.run()
    assert launch.published == list(range(60))
    assert launch.engine.replaced == ["worker 1 lost with node n1"]
    assert [event for worker, event in launch.events if worker == 1 and isinstance(event, Died)] == [
        Died("lost with node n1", by_another=False)
    ]


def test_a_node_that_joins_gets_work(tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, gated=True)
    launch = Launch(tmp_path, cluster, STEPS)

    def join_then_go_on(worker: int, event: Event) -> None:
        if isinstance(event, Ready):
            if len(cluster.alive) == 2:
                cluster.join(1)
            if launch.kinds["Ready"] == 3:
                launch.open_gate()

    launch.react = join_then_go_on
    launch.run()
    assert launch.published == list(range(60))
    assert {worker for worker, event in launch.events if isinstance(event, StepDone)} == {0, 1, 2}


def test_a_worker_that_dies_is_replaced_on_its_node_and_its_record_found(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, deadly=[31])
    launch = Launch(tmp_path, cluster, STEPS).run()
    assert launch.published == list(range(60))
    assert all(" ended by signal 9 (SIGKILL) on node n" in sentence for sentence in launch.engine.replaced)
    (part,) = launch.run_file.parent.glob("part-0-31-32")
    assert part.read_text().startswith("every process that touched this record died; the last: worker ")


def test_an_actor_that_ray_ends_is_replaced(tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, gated=[1])
    launch = Launch(tmp_path, cluster, STEPS)
    launch.at_first(StepDone, lambda: cluster.actors[0].fail(Exception("out of memory")), worker=0)
    launch.go_on_after_a_death()
    launch.run()
    assert launch.published == list(range(60))
    assert launch.engine.replaced == ["worker 0 ended with its Ray actor on node n0"]


def test_a_step_that_was_published_before_its_node_was_lost_does_not_run_again(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, lost=[4])
    launch = Launch(tmp_path, cluster, STEPS).run()
    assert launch.published == list(range(60)), "the fake worker fails if a part is published twice"
    assert launch.kinds["Recovered"] == 1
    assert [event.step for _, event in launch.events if isinstance(event, Recovered)] == [Step(0, 3, 6)]


def test_another_version_on_a_node_is_refused_with_both(tmp_path: Path, cluster: FakeCluster) -> None:
    here = versions()
    cluster.facts["n1"] = [Facts(CoreBudget((0,), None), {**here, "Pillow": "1.0"}, "")]
    with pytest.raises(UsageError) as caught:
        Launch(tmp_path, cluster, STEPS).run()
    assert str(caught.value) == (
        f"node n1 has Pillow 1.0, and the launcher's host Pillow {here['Pillow']}: install the same version on both"
    )
    assert cluster.actors == [], "nothing was started"


def test_a_node_that_joins_with_another_version_gets_no_work(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No step is done before the node has been looked at."""
    disturb(monkeypatch, gated=True)
    launch, plain = Launch(tmp_path, cluster, STEPS), cluster.inspect

    def join() -> None:
        cluster.facts["n2"] = [Facts(CoreBudget((0,), None), {}, "does not have models/tiny")]
        cluster.join(1)

    def inspect(node: Node, asked: Question, then: Callable[[Facts | BaseException], None]) -> None:
        plain(node, asked, then)
        if node.id == "n2":
            launch.open_gate()

    monkeypatch.setattr(cluster, "inspect", inspect)
    launch.at_first(Ready, join)
    launch.run()
    assert launch.published == list(range(60))
    assert "warning: node n2 does not have models/tiny; it gets no work" in capsys.readouterr().err


def test_a_node_that_has_just_joined_is_asked_until_it_can_be_reached(tmp_path: Path, cluster: FakeCluster) -> None:
    """Ray names it before it hands out work there."""
    unreachable = UnreachableError("The task is not schedulable")
    cluster.facts["n1"] = [unreachable, unreachable, Facts(CoreBudget((0,), None), {}, "does not have models/tiny")]
    with pytest.raises(UsageError, match=r"^node n1 does not have models/tiny$"):
        Launch(tmp_path, cluster, STEPS).run()


def test_a_node_that_cannot_be_reached_for_long_is_refused(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_hosts, "_JOIN_S", 0.2)
    cluster.facts["n1"] = [UnreachableError("The task is not schedulable")] * 1000
    with pytest.raises(UsageError, match=r"^node n1 cannot be checked; .*, and Ray says: The task is not schedulable$"):
        Launch(tmp_path, cluster, STEPS).run()


def test_a_cluster_without_room_is_refused(tmp_path: Path, cluster: FakeCluster) -> None:
    cluster.alive.clear()
    cluster.join(0)
    with pytest.raises(UsageError, match=r"the Ray cluster at 127.0.0.1:6379 has no node with room for a worker"):
        Launch(tmp_path, cluster, STEPS).run()


def test_without_any_node_left_the_launch_ends(tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_WITHOUT_NODES_S", 0.1)
    disturb(monkeypatch, slow_records_s=0.02)
    launch = Launch(tmp_path, cluster, STEPS)

    def lose_all() -> None:
        for name in list(cluster.alive):
            cluster.lose(name, is_known=True)

    launch.at_first(StepDone, lose_all)
    with pytest.raises(RunError, match="runs a worker any more: run the command again"):
        launch.run()


def test_a_head_that_does_not_answer_ends_the_launch(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_SILENT_S", 0.2)
    monkeypatch.setattr(ray_hosts, "_NODES_S", 60.0)
    disturb(monkeypatch, slow_records_s=0.05)
    with pytest.raises(RunError, match=r"has not answered for 0.2 s: once it runs again, the same command continues"):
        Launch(tmp_path, cluster, STEPS).run()


def test_a_signal_ends_the_launch(tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "STOP_GRACE_S", 60.0)
    disturb(monkeypatch, slow_s=0.02, gated=True)
    launch = Launch(tmp_path, cluster, split_step(Step(0, 0, 20_000), 2))
    launch.at_first(StepDone, lambda: os.kill(os.getpid(), signal.SIGTERM))
    stop = launch.react

    def go_on_when_all_are_ready(worker: int, event: Event) -> None:
        if launch.kinds["Ready"] == 2:
            launch.open_gate()
        stop(worker, event)

    launch.react = go_on_when_all_are_ready
    launch.run()
    assert launch.engine.signal == signal.SIGTERM
    assert launch.kinds["Ended"] == launch.kinds["Ready"] == 2
    assert 0 < len(launch.published) < 20_000


def test_no_worker_is_started_for_a_launch_that_is_over(tmp_path: Path, cluster: FakeCluster) -> None:
    launch = Launch(tmp_path, cluster, STEPS[:1])
    launch.at_first(Ready, lambda: None)
    assert launch.run().published == [0, 1, 2]
