"""Every fault of the matrix, once: then the same command leads to the rows of an undisturbed run, and leaves nothing behind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product

import pytest

from tests.faults.matrix import ALL_POINTS, CELLS, FAULTS, LEFT_OUT, ROLES, SIDES, Cell
from tests.faults.points import WORKER
from tests.faults.scene import Place, run_cell
from tests.faults.whole_runs import WHOLE_RUNS

AT_ONCE = 2  # launches
BY_NAME = {cell.name: cell for cell in CELLS}
Results = dict[str, "Future[list[str]]"]


def workers_for(cell: Cell) -> int:
    """Two where one dies and the other goes on; one is quicker elsewhere (tools/faults has any number everywhere)."""
    return 2 if cell.fault == "kill" and ROLES[cell.point] == WORKER else 1


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """What each selected fault leads to, by name: they run two at a time, and the tests below wait for their own."""
    folder = tmp_path_factory.mktemp("faults")
    place = Place.make(folder / "place")
    chosen = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {}
        for number, name in enumerate(chosen):
            scene = folder / f"{number:03d}"
            if name in BY_NAME:
                futures[name] = pool.submit(run_cell, place, BY_NAME[name], scene, num_devices=workers_for(BY_NAME[name]))
            else:
                futures[name] = pool.submit(WHOLE_RUNS[name], place, scene, random.Random(name))
        yield futures
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fault_at_a_point(results: Results, name: str) -> None:
    assert results[name].result() == []


@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_a_fault_of_a_whole_run(results: Results, name: str) -> None:
    assert results[name].result() == []


def test_every_pair_is_run_or_left_out_for_a_reason() -> None:
    pairs = set(product(ALL_POINTS, SIDES, FAULTS))
    run = {(cell.point, cell.side, cell.fault) for cell in CELLS}
    assert run | set(LEFT_OUT) == pairs
    assert not run & set(LEFT_OUT)
    assert len(BY_NAME) == len(CELLS), "two cells have one name"
    assert {point for point, _, _ in run} == set(ALL_POINTS), "every point has a cell"
