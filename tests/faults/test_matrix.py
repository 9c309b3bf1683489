"""Every fault of the matrix, once: then the same command leads to the rows of an undisturbed run, and leaves nothing behind."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from tests.faults.matrix import ALL_POINTS, CELLS, FAULTS, LEFT_OUT, LOADER_CELLS, ROLES, SHORT_CELLS, SIDES, Cell
from tests.faults.points import WORKER
from tests.faults.scene import Place, run_cell
from tests.faults.whole_runs import WHOLE_RUNS
from tests.forms import long, long_param, only_first

BY_NAME = {cell.name: cell for cell in CELLS}
SHORT = {cell.name for cell in SHORT_CELLS}


def workers_for(cell: Cell) -> int:
    """Two where one dies and the other goes on; one is quicker elsewhere (tools/faults has any number everywhere)."""
    return 2 if cell.fault == "kill" and ROLES[cell.point] == WORKER else 1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place.make(tmp_path_factory.mktemp("faults") / "place")


@pytest.mark.parametrize("name", [name if name in SHORT else long_param(name) for name in BY_NAME])
def test_a_fault_at_a_point(place: Place, tmp_path: Path, name: str) -> None:
    assert run_cell(place, BY_NAME[name], tmp_path / "scene", num_devices=workers_for(BY_NAME[name])) == []


@pytest.mark.parametrize("cell", only_first(LOADER_CELLS), ids=lambda cell: cell.name)
def test_a_fault_beside_loader_processes(place: Place, tmp_path: Path, cell: Cell) -> None:
    assert run_cell(place, cell, tmp_path / "scene", num_devices=1) == []


@long
@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_a_fault_of_a_whole_run(place: Place, tmp_path: Path, name: str) -> None:
    assert WHOLE_RUNS[name](place, tmp_path / "scene", random.Random(name)) == []


def test_the_short_form_has_every_point_once_and_every_fault() -> None:
    assert sorted(cell.point for cell in SHORT_CELLS) == sorted(ALL_POINTS)
    assert {ROLES[cell.point] for cell in SHORT_CELLS} == set(ROLES.values())
    assert {cell.fault for cell in SHORT_CELLS} == set(FAULTS)


def test_every_pair_is_run_or_left_out_for_a_reason() -> None:
    pairs = set(product(ALL_POINTS, SIDES, FAULTS))
    run = {(cell.point, cell.side, cell.fault) for cell in CELLS}
    assert run | set(LEFT_OUT) == pairs
    assert not run & set(LEFT_OUT)
    assert len(BY_NAME) == len(CELLS), "two cells have one name"
    assert {point for point, _, _ in run} == set(ALL_POINTS), "every point has a cell"
