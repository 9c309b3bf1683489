"""ray_node.py: what a node lacks, in one sentence; commands that overtake each other; the end of a worker process."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.json_file import write_json
from bulkinfer.launch.engines import worker_handle
from bulkinfer.launch.engines.ray_node import NodeWorker, Question, inspect_node
from bulkinfer.launch.run import write_run
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Command, End, Ended, Ready, RunSpec, RunStep, StepDone, decode, encode

from tests.fake_interpreter import write_interpreter
from tests.launches import launch_of, plan_of
from tests.memory_store import put_in_place

SHARED = "logs, results, pictures and network must lie in a file system that all nodes have, under the same paths"


@pytest.fixture
def question(tmp_path: Path) -> Question:
    """What a node must have for a launch in tmp_path."""
    run_file = write_run(launch_of(tmp_path, batches_per_step=1))
    spec, lock = RunSpec.read(run_file), tmp_path / "lock.json"
    write_json(lock, {"token": "abc"})
    locks = {str(lock): "abc"}
    return Question(str(run_file), file_sha256(run_file), locks, spec.session.graph, spec.batch_size, spec.graph_sha256)


def test_a_node_that_has_all_lacks_nothing(question: Question) -> None:
    found = inspect_node(question)
    assert found.problem == ""
    assert found.cores.usable >= 1
    assert "Pillow" in found.versions


def test_a_node_without_the_file_system_is_described(question: Question, tmp_path: Path) -> None:
    missing = replace(question, run_file="/elsewhere/run.json")
    assert inspect_node(missing).problem == f"does not have /elsewhere/run.json: {SHARED}"
    other = replace(question, run_file_sha256="0" * 64)
    assert inspect_node(other).problem == f"finds another {question.run_file} than the launcher wrote: {SHARED}"
    (tmp_path / "lock.json").unlink()
    assert inspect_node(question).problem == f"does not find the launcher's {tmp_path}/lock.json: {SHARED}"


def test_a_node_without_the_network_is_described(question: Question, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "tiny"
    (weights,) = folder.glob("*.bin")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + b"\0")
    assert inspect_node(question).problem == (
        f"has a damaged {weights} (its hash is not that in card.json): copy the folder of the network again"
    )
    weights.write_bytes(content)
    assert inspect_node(replace(question, graph_sha256="0" * 64)).problem.startswith(f"has another {question.graph}")
    (folder / "card.json").unlink()
    assert "card.json" in inspect_node(question).problem


def test_a_network_in_a_store_is_fetched(question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = put_in_place(monkeypatch, tmp_path / "cache")
    store.put_folder(tmp_path / "models", "models")
    shutil.rmtree(tmp_path / "models")
    assert inspect_node(replace(question, network_address="s3://bucket/models/tiny")).problem == ""
    assert Path(question.graph).is_file()


def test_commands_that_overtake_each_other_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handle.sys, "executable", str(write_interpreter(tmp_path)))
    run_file = tmp_path / "run.json"
    run_file.write_text("{}")
    worker = NodeWorker(str(run_file), 7, plan_of(), 0, False, 60.0)
    steps = [Step(0, start, start + 2) for start in (0, 2, 4)]
    commands: list[Command] = [*map(RunStep, steps), End()]
    for number in (3, 1, 0, 2):
        worker.send(number, encode(commands[number]).encode())
    lines: list[bytes] = []
    while (found := worker.reports(1.0)).ending is None:
        lines += found.lines
    events = [decode(line) for line in [*lines, *found.lines]]
    assert [type(event) for event in events] == [Ready, StepDone, StepDone, StepDone, Ended]
    assert [event.step for event in events[1:4]] == steps
    assert (found.ending.how, found.ending.is_clean, found.ending.last_words) == ("ended by exit code 0", True, "")


def test_what_a_dead_worker_was_working_on_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handle.sys, "executable", str(write_interpreter(tmp_path)))
    run_file = tmp_path / "run.json"
    run_file.write_text('{"deadly": [5]}')
    worker = NodeWorker(str(run_file), 7, plan_of(), 0, False, 60.0)
    worker.send(0, encode(RunStep(Step(0, 4, 8))).encode())
    while (found := worker.reports(1.0)).ending is None:
        pass
    assert (found.ending.how, found.ending.is_clean) == ("ended by signal 9 (SIGKILL)", False)
    assert found.ending.running == [Step(0, 5, 6)]
    assert "started with cores" in found.ending.last_words


def test_a_worker_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handle.sys, "executable", str(write_interpreter(tmp_path)))
    run_file = tmp_path / "run.json"
    run_file.write_text('{"hanging": [5]}')
    worker = NodeWorker(str(run_file), 7, plan_of(), 0, False, 0.5)
    worker.send(0, encode(RunStep(Step(0, 4, 8))).encode())
    while (found := worker.reports(1.0)).ending is None:
        pass
    assert found.ending.how == "ended for making no progress in 0.5 s"
