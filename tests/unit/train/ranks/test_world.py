"""ranks/world.py: the variables of torchrun, mpirun and srun, and what they must agree with."""

from __future__ import annotations

import os

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.train.ranks.world import World, find_starter, find_world, is_first_rank

MPI = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
       "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "a"}  # fmt: skip
SLURM = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
         "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "MASTER_ADDR": "a"}  # fmt: skip
TORCH = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "a"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name in {*MPI, *TORCH} or name.startswith("SLURM_"):
            monkeypatch.delenv(name)


def world(monkeypatch: pytest.MonkeyPatch, replicas: int = 0, stages: int = 1, **given: str) -> World:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return find_world(replicas, stages)


def test_a_process_that_nobody_started_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch) == World(0, 1, 0, 1)
    assert is_first_rank()


@pytest.mark.parametrize("variables", [TORCH, MPI, SLURM], ids=["torchrun", "mpirun", "srun"])
def test_what_each_of_them_sets(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch, **variables) == World(5, 8, 1, 4)
    assert not is_first_rank()


def test_torchrun_below_srun_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch, **{**SLURM, **TORCH, "RANK": "3"}).rank == 3


def test_hosts_with_other_numbers_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(monkeypatch, **{**SLURM, "SLURM_STEP_TASKS_PER_NODE": "3(x2),2", "SLURM_NODEID": "2"})
    assert found == World(5, 8, 1, 2)


def test_the_script_of_a_batch_job_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm sets SLURM_NTASKS for it as well, but no variable of a step."""
    assert world(monkeypatch, SLURM_PROCID="0", SLURM_NTASKS="8", SLURM_LOCALID="0") == World()
    assert world(monkeypatch, SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1") == World()
    assert find_starter() is None, "so that it may start ranks of its own"


def test_replicas_and_stages_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(monkeypatch, stages=2, **TORCH)
    assert (found.replicas, found.replica, found.stage) == (4, 2, 1)


def test_a_plan_is_for_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_world(16, 2, is_plan=True) == World(size=32, local_size=32, stages=2)
    assert find_world(0, is_plan=True) == World()
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert find_world(0, is_plan=True).replicas == 3


@pytest.mark.parametrize(("given", "sentence"), [
    ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x', and must be a whole number from 1"),
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', and must be a whole number from 1"),
    ({"WORLD_SIZE": ""}, "WORLD_SIZE is '', and must be a whole number from 1"),
    ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x', and must be a whole number from 0 to 1, as WORLD_SIZE is 2: unset it"),
    ({"RANK": "1"}, "RANK is '1', and must be a whole number from 0 to 0, as WORLD_SIZE is 1: unset it"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is '2', and must be a whole number from 0 to 1, as WORLD_SIZE is 2"),
    ({"LOCAL_RANK": "-1"}, "LOCAL_RANK is '-1', and must be a whole number from 0 to 0, as LOCAL_WORLD_SIZE is 1"),
    ({"LOCAL_WORLD_SIZE": "\u0662"}, "LOCAL_WORLD_SIZE is '\u0662', and must be a whole number from 1"),
    ({**MPI, "OMPI_COMM_WORLD_RANK": "9"}, "OMPI_COMM_WORLD_RANK is '9', and must be a whole number from 0 to 7, as OMPI_"),
    ({**SLURM, "SLURM_NODEID": "2"}, "SLURM_NODEID is '2', and must be a whole number from 0 to 1: unset it, or start with s"),
])  # fmt: skip
def test_what_they_do_not_set_is_refused_by_name(given: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=f"^the variable {sentence}"):
        world(monkeypatch, **given)


@pytest.mark.parametrize(("replicas", "stages", "product"), [
    (4, 1, "--replicas 4 needs 4 processes"), (8, 2, "--replicas 8 x --shards 2 needs 16 processes"),
    (0, 3, "--replicas 2 x --shards 3 needs 6 processes"),
])  # fmt: skip
def test_another_number_than_asked_for(replicas: int, stages: int, product: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=f"^{product}, and mpirun has started 8: put torchrun --nproc_per_node"):
        world(monkeypatch, replicas, stages, **MPI)


@pytest.mark.parametrize("variables", [TORCH, MPI, SLURM], ids=["torchrun", "mpirun", "srun"])
def test_several_hosts_need_an_address(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in variables.items() if name != "MASTER_ADDR"}
    with pytest.raises(UsageError, match="has started 8 processes on several hosts, and MASTER_ADDR is not set: set it to"):
        world(monkeypatch, **given)


def test_one_host_needs_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert world(monkeypatch, **given, OMPI_COMM_WORLD_LOCAL_SIZE="2") == World(1, 2, 1, 2)
