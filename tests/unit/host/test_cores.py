"""cores.py: the quota of fake control groups, and how workers share the cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.host.cores import THREADS_ONLY, CoreBudget, ThreadPlan, core_budget, plan_threads
from hypothesis import given
from hypothesis import strategies as st

V2 = "0::/jobs/mine\n"
BOTH = "cpu,cpuacct__"
V1 = "12:pids:/jobs\n4:cpu,cpuacct:/jobs/mine\n1:name=systemd:/\n"


def quota(root: Path, groups: str | None, **files: str) -> float | None:
    """The quota that core_budget finds under `root`; `files` are path (with __ for /) -> content."""
    if groups is not None:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/")
        path = path.with_name(path.name.replace("cpu_max", "cpu.max").replace("cpu_cfs", "cpu.cfs"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return core_budget(root).quota


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (V2, {"jobs__mine__cpu_max": "200000 100000\n"}, 2.0),
        (V2, {"jobs__mine__cpu_max": "max 100000\n"}, None),
        (V2, {"jobs__mine__cpu_max": "150000 100000\n"}, 1.5),
        # the smallest of the group and its parents counts
        (V2, {"jobs__mine__cpu_max": "800000 100000\n", "jobs__cpu_max": "300000 100000\n", "cpu_max": "max 100000\n"}, 3.0),
        (V2, {"jobs__mine__cpu_max": "max 100000\n", "cpu_max": "50000 100000\n"}, 0.5),
        # in a container the path is the host's and the mount is the container's own group
        ("0::/docker/abc\n", {"cpu_max": "250000 100000\n"}, 2.5),
        (V2, {}, None),
        (V2, {"jobs__mine__cpu_max": "\n"}, None),
        (None, {}, None),
        ("", {}, None),
        # v1, and hybrids of both
        (V1, {f"{BOTH}jobs__mine__cpu_cfs_quota_us": "150000", f"{BOTH}jobs__mine__cpu_cfs_period_us": "100000"}, 1.5),
        (V1, {"cpu__jobs__mine__cpu_cfs_quota_us": "300000", "cpu__jobs__mine__cpu_cfs_period_us": "100000"}, 3.0),
        (V1, {f"{BOTH}jobs__mine__cpu_cfs_quota_us": "-1", f"{BOTH}jobs__mine__cpu_cfs_period_us": "100000"}, None),
        (V1, {f"{BOTH}cpu_cfs_quota_us": "400000", f"{BOTH}cpu_cfs_period_us": "100000"}, 4.0),
        (V1, {f"{BOTH}jobs__mine__cpu_cfs_quota_us": "150000"}, None),
        ("0::/jobs\n1:cpu:/\n", {"unified__jobs__cpu_max": "100000 50000"}, 2.0),
    ],
)  # fmt: skip
def test_b35_quota(tmp_path: Path, groups: str | None, files: dict[str, str], expected: float | None) -> None:
    assert quota(tmp_path, groups, **files) == expected


def test_b35_affinity_is_this_process_own(tmp_path: Path) -> None:
    assert core_budget(tmp_path).affinity == tuple(sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("cores", "quota", "usable"), [(8, None, 8), (8, 3.9, 3), (8, 100.0, 8), (2, 1.5, 1), (8, 0.5, 1), (1, None, 1)]
)
def test_b35_usable_is_the_smaller_of_mask_and_quota_and_at_least_one(cores: int, quota: float | None, usable: int) -> None:
    assert CoreBudget(tuple(range(cores)), quota).usable == usable


def test_b35_the_header_shows_both() -> None:
    assert str(CoreBudget((0, 1, 2, 3), 1.5)) == "1 usable of 4 in the affinity mask, quota 1.5"
    assert str(CoreBudget((0, 1), None)) == "2 usable of 2 in the affinity mask, no quota"


def test_b35_one_worker_takes_all_cores() -> None:
    plan = plan_threads(CoreBudget((0, 1, 6, 7), None), num_devices=0, streams=0, num_workers=0)
    assert (plan.num_devices, plan.streams, plan.threads_per_stream, plan.num_workers) == (1, 4, 1, 4)
    assert plan.affinity == ((0, 1, 6, 7),)
    assert str(plan) == "1 worker, each 4 stream(s) x 1 thread(s) and 4 loader thread(s); spinning off"


def test_b35_more_workers_than_cores_share_them_all() -> None:
    plan = plan_threads(CoreBudget((2, 5), None), num_devices=8, streams=0, num_workers=0)
    assert (plan.streams, plan.threads_per_stream, plan.num_workers) == (1, 1, 1)
    assert plan.affinity == ((2, 5),) * 8
    assert str(plan).startswith("8 workers, each 1 stream(s)")


def test_b35_a_quota_of_one_and_a_half_plans_one_thread_that_may_use_every_core() -> None:
    plan = plan_threads(CoreBudget((0, 1, 2, 3), 1.5), num_devices=1, streams=0, num_workers=0)
    assert (plan.streams, plan.threads_per_stream, plan.num_workers) == (1, 1, 1)
    assert plan.affinity == ((0, 1, 2, 3),)


@pytest.mark.parametrize(
    ("streams", "num_workers", "expected"), [(1, 0, (1, 4, 4)), (2, 3, (2, 2, 3)), (3, 0, (3, 1, 4)), (9, 1, (9, 1, 1))]
)
def test_b35_what_is_given_is_kept(streams: int, num_workers: int, expected: tuple[int, int, int]) -> None:
    plan = plan_threads(CoreBudget((0, 1, 2, 3), None), num_devices=1, streams=streams, num_workers=num_workers)
    assert (plan.streams, plan.threads_per_stream, plan.num_workers) == expected


@given(st.sets(st.integers(0, 200), min_size=1, max_size=64), st.data())
def test_b35_blocks_are_disjoint_and_cover_all_cores(cores: set[int], data: st.DataObject) -> None:
    budget = CoreBudget(tuple(sorted(cores)), data.draw(st.none() | st.floats(0.5, 80)))
    devices = data.draw(st.integers(1, budget.usable))
    plan = plan_threads(budget, num_devices=devices, streams=0, num_workers=0)
    assert sorted(core for block in plan.affinity for core in block) == sorted(cores)
    sizes = [len(block) for block in plan.affinity]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert devices * plan.streams * plan.threads_per_stream <= budget.usable


def plan_on(cores: int, *, workers: int = 0, processes: int = 0) -> ThreadPlan:
    budget = CoreBudget(tuple(range(cores)), None)
    return plan_threads(budget, num_devices=1, streams=0, num_workers=workers, loader_processes=processes)


@pytest.mark.parametrize(("threads", "processes"), [(1, 0), (5, 0), (6, 2), (10, 2), (11, 3), (16, 4), (64, 13)])
def test_more_than_five_loader_threads_get_processes(threads: int, processes: int) -> None:
    assert plan_on(threads).loader_processes == plan_on(2, workers=threads).loader_processes == processes
    assert plan_on(threads, processes=THREADS_ONLY).loader_processes == 0


def test_loader_processes_that_were_asked_for() -> None:
    assert (plan_on(2, processes=1).num_workers, plan_on(2, processes=1).loader_processes) == (2, 1)
    assert (plan_on(2, processes=3).num_workers, plan_on(2, processes=3).loader_processes) == (3, 3), "a thread each"
    assert plan_on(16, workers=4, processes=4).loader_processes == 4
    with pytest.raises(UsageError, match="--loader_processes 5: each has a loader thread at least, and --num_workers is 4"):
        plan_on(16, workers=4, processes=5)


def test_the_header_names_loader_processes_where_there_are_any() -> None:
    assert str(plan_on(2, processes=2)).endswith("and 2 loader thread(s) in 2 loader process(es); spinning off")
    assert str(plan_on(2)).endswith("and 2 loader thread(s); spinning off")


def test_a_typing_error_does_not_start_thousands_of_processes() -> None:
    with pytest.raises(UsageError, match="1025 worker processes are too many: at most 1024 on one host"):
        plan_threads(CoreBudget((0,), None), num_devices=1025, streams=0, num_workers=0)


@pytest.mark.parametrize("option", ["num_workers", "loader_processes", "streams", "threads_per_stream"])
def test_more_threads_than_the_cores_can_serve(option: str) -> None:
    asked = {"num_devices": 1, "streams": 0, "num_workers": 0}
    for cores, most in ((1, 64), (2, 64), (8, 256)):
        budget = CoreBudget(tuple(range(cores)), None)
        plan_threads(budget, **{**asked, option: most})
        with pytest.raises(UsageError, match=rf"--{option} {most + 1} is too many for {cores} cores?: give at most {most}"):
            plan_threads(budget, **{**asked, option: most + 1})
