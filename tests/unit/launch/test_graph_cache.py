"""graph_cache.py of the launch: when an entry is made and used, and what the log says where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.host.isolated_call import Failure, NoAnswer
from bulkinfer.launch import graph_cache
from bulkinfer.launch.graph_cache import with_cached_graph
from bulkinfer.launch.open_model import open_model
from bulkinfer.model.lookup import Model, find_model
from bulkinfer.runtime.graph_cache import RECORD, VARIABLE, WEIGHTS, stamp_of
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec

from tests.cached_graphs import entries, entry, write_conv_model
from tests.flips import Flip
from tests.launches import config_of
from tests.logged import logged
from tests.models import write_tiny_model


def model_in(folder: Path, *, seed: int = 0) -> tuple[Model, SessionSpec]:
    config = config_of(folder)
    write_conv_model(folder / "models", seed=seed)
    model = find_model(config, ["cpu"])
    return model, SessionSpec(str(model.graph), "cpu", "fp32", 1, 1)


def test_several_workers_get_an_entry_and_a_later_launch_finds_it(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    lines: list[str] = []
    made = logged(lines, with_cached_graph, session, model, 2)
    graph = entry(tmp_path / "models" / "tiny") / "graph.onnx"
    assert made == replace(session, cached_graph=str(graph), cached_stamp=stamp_of(str(graph)))
    begins, line = lines
    assert begins == f"graph cache: {session.graph} is optimised for all workers, once"
    assert line.startswith(f"graph cache: made {graph} in ")
    for workers in (1, 2):
        assert logged(lines, with_cached_graph, session, model, workers) == made
    assert len(lines) == 2


def test_one_worker_makes_none(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    lines: list[str] = []
    assert logged(lines, with_cached_graph, session, model, 1) == session
    assert (lines, entries(tmp_path / "models" / "tiny")) == ([], [])


def test_it_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, session = model_in(tmp_path)
    monkeypatch.setenv(VARIABLE, "off")
    assert with_cached_graph(session, model, 2) == session
    monkeypatch.setenv(VARIABLE, "on")
    with_cached_graph(session, model, 2)
    monkeypatch.setenv(VARIABLE, "off")
    assert with_cached_graph(session, model, 2) == session


def test_it_is_for_providers_that_optimise_in_each_process(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    for provider in PROVIDERS:
        if provider != "cpu":
            assert with_cached_graph(other := replace(session, provider=provider), model, 2) == other
    assert entries(tmp_path / "models" / "tiny") == []


def test_small_networks_need_none(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    folder = write_tiny_model(tmp_path / "models", batch_sizes=(4,))
    model = find_model(config, ["cpu"])
    session = SessionSpec(str(model.graph), "cpu", "fp32", 1, 1)
    assert with_cached_graph(session, model, 8) == session
    assert entries(folder) == []


def test_a_damaged_entry_is_said_and_made_again_by_several_workers(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    lines: list[str] = []
    with_cached_graph(session, model, 2)
    folder = entry(tmp_path / "models" / "tiny")
    Flip(WEIGHTS, 999).apply(folder)
    assert logged(lines, with_cached_graph, session, model, 1) == session
    damaged = f"{folder} is damaged ({WEIGHTS} is not the file recorded)"
    assert lines == [f"graph cache: {damaged}: it is not used, and the next launch of several workers makes it again"]
    made = logged(lines, with_cached_graph, session, model, 2)
    assert made.cached_stamp == stamp_of(str(folder / "graph.onnx"))
    assert lines[2].startswith("graph cache: made ")
    assert lines[2].endswith(f" sec; {damaged}")


def test_a_model_folder_that_cannot_hold_it_is_said(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    place = tmp_path / "models" / "tiny" / "graph_cache"
    place.write_bytes(b"a file of somebody else")
    lines: list[str] = []
    assert logged(lines, with_cached_graph, session, model, 2) == session
    _, line = lines
    assert line.startswith(f"graph cache: not made ({session.graph}: FileExistsError: ")
    assert line.endswith("): each worker optimises the graph by itself")


LASTING = [Failure("graph cache took more than 300 s to open and run"), {"refusal": "it gives other bits"}]


@pytest.mark.parametrize("given", LASTING)
def test_what_cannot_be_made_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object) -> None:
    model, session = model_in(tmp_path)
    asked = list[str]()
    monkeypatch.setattr(graph_cache, "ask", lambda module, *_: asked.append(module) or given)
    lines: list[str] = []
    reason = given["refusal"] if isinstance(given, dict) else given
    for _ in range(3):
        assert logged(lines, with_cached_graph, session, model, 2) == session
    folder = entry(tmp_path / "models" / "tiny")
    assert len(asked) == 1
    assert lines[1:] == [
        f"graph cache: not made ({reason}); recorded in {folder}, later launches do not try again: "
        "each worker optimises the graph by itself",
        *[f"graph cache: not used: {reason}; remove {folder} to try again"] * 2,
    ]
    Flip(RECORD, 40).apply(folder)  # a record that is not sound holds nobody back
    monkeypatch.undo()
    assert with_cached_graph(session, model, 2).cached_graph == str(folder / "graph.onnx")


@pytest.mark.parametrize("given", ["the disk is full", NoAnswer("graph cache ends its process: exit code -2")])
def test_what_may_pass_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    model, session = model_in(tmp_path)
    monkeypatch.setattr(graph_cache, "ask", lambda *_: given)
    lines: list[str] = []
    assert logged(lines, with_cached_graph, session, model, 2) == session
    assert lines[1] == f"graph cache: not made ({given}): each worker optimises the graph by itself"
    assert entries(tmp_path / "models" / "tiny") == []
    monkeypatch.undo()
    assert with_cached_graph(session, model, 2) != session


def test_other_weights_get_their_own_entry_and_the_old_one_goes(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    first = with_cached_graph(session, model, 2)
    other, session = model_in(tmp_path, seed=1)
    second = with_cached_graph(session, other, 2)
    assert first.cached_graph != second.cached_graph
    assert Path(second.cached_graph).parent == entry(tmp_path / "models" / "tiny")


def test_a_predictor_opens_what_is_there(tmp_path: Path) -> None:
    model, session = model_in(tmp_path)
    with open_model(tmp_path / "models" / "tiny", device="cpu", precision="fp32", batch_size=4) as plain:
        assert "cached_graph" not in plain.proof
    with_cached_graph(session, model, 2)
    with open_model(tmp_path / "models" / "tiny", device="cpu", precision="fp32", batch_size=4) as predictor:
        assert predictor.proof["cached_graph"] == entry(tmp_path / "models" / "tiny").name
