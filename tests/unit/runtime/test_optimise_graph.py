"""optimise_graph.py: an entry is published whole, after it gave the same bits as the graph; what is left over is removed."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RunError
from bulkinfer.files.atomic import file_sha256, temporary_path, write_owner_file
from bulkinfer.runtime import optimise_graph
from bulkinfer.runtime.graph_cache import GRAPH, RECORD, WEIGHTS, Entry, entry_folder, facts_of, find_entry, stamp_of
from bulkinfer.runtime.optimise_graph import make_entry
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.runtime.session import Session, describe_proof

from tests.cached_graphs import MIB, conv_graph, entries, entry
from tests.graphs import save

OUTPUTS = ["logits", "embedding"]


def spec_in(folder: Path) -> tuple[SessionSpec, dict[str, str]]:
    graph = Path(save(conv_graph(4), folder))
    return SessionSpec(str(graph), "cpu", "fp32", 2, 1), facts_of(graph, file_sha256(graph), "b" * 64)


def cached(spec: SessionSpec, its: Entry) -> SessionSpec:
    return replace(spec, cached_graph=its.graph, cached_stamp=its.stamp)


def outputs_of(session: Session) -> list[bytes]:
    images = np.random.default_rng(3).integers(0, 256, session.batch_shape, np.uint8)
    return [session.run(images)[name].tobytes() for name in OUTPUTS]


def test_the_entry_is_sound_and_gives_the_same_bits(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    made = make_entry(spec, facts, MIB)
    assert made == find_entry(entry_folder(Path(spec.graph), facts), facts)
    assert sorted(path.name for path in entry(tmp_path).iterdir()) == sorted([GRAPH, WEIGHTS, RECORD])
    plain, fast = Session(spec, OUTPUTS), Session(cached(spec, made), OUTPUTS)
    assert outputs_of(plain) == outputs_of(fast)
    assert (fast.batch_shape, fast.dtype, fast.output_shapes) == (plain.batch_shape, plain.dtype, plain.output_shapes)


def test_the_proof_says_what_was_opened(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    plain = Session(spec, OUTPUTS).proof
    made = make_entry(spec, facts, MIB)
    proof = Session(cached(spec, made), OUTPUTS).proof
    assert "cached_graph" not in plain
    assert proof["cached_graph"] == entry(tmp_path).name
    assert list(proof["nodes"]) == ["CPUExecutionProvider"]
    assert 0 < proof["nodes"]["CPUExecutionProvider"] < plain["nodes"]["CPUExecutionProvider"], "of the graph that runs"
    assert {**proof, "nodes": 0, "cached_graph": 0} == {**plain, "nodes": 0, "cached_graph": 0}
    assert describe_proof(proof).endswith(f", optimised before (graph cache, entry {entry(tmp_path).name})")


def test_an_entry_that_changed_since_is_not_opened(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    made = make_entry(spec, facts, MIB)
    plain = Session(spec, OUTPUTS)
    weights = Path(made.graph).with_name(WEIGHTS)
    weights.write_bytes(bytes(weights.stat().st_size))
    session = Session(cached(spec, made), OUTPUTS)
    assert outputs_of(session) == outputs_of(plain)
    assert session.proof["cache_not_used"] == f"{made.graph} has changed since the launch began"
    assert session.proof["nodes"] == plain.proof["nodes"]
    assert "; the cached graph is not used: " in describe_proof(session.proof)


def test_an_entry_that_cannot_be_opened_is_not_used(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    made = make_entry(spec, facts, MIB)
    Path(made.graph).write_bytes(b"no graph")
    session = Session(cached(spec, Entry(made.graph, stamp_of(made.graph))), OUTPUTS)
    assert outputs_of(session) == outputs_of(Session(spec, OUTPUTS))
    assert session.proof["cache_not_used"].startswith(f"--device cpu cannot run {made.graph}: ")


def test_a_graph_that_gives_other_bits_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, facts = spec_in(tmp_path)
    real = optimise_graph.open_file
    (tmp_path / "other").mkdir()
    other = save(conv_graph(4, seed=1), tmp_path / "other")

    def open_file(spec: SessionSpec, graph: str, **how: Any) -> Any:
        return real(spec, other if how.get("is_optimised") else graph, **how)

    monkeypatch.setattr(optimise_graph, "open_file", open_file)
    with pytest.raises(RunError, match=r"the optimised graph of .* gives other bits than the graph"):
        make_entry(spec, facts, MIB)
    assert entries(tmp_path) == []


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    with pytest.raises(RunError, match=r"is on a disk with \d+ MiB free, \d+ are needed"):
        make_entry(spec, facts, 1 << 60)
    assert entries(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], check=True)
    try:
        spec, facts = spec_in(disk)
        failures = 0
        for kib in range(600, 1400, 100):
            subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)
            try:
                made = make_entry(spec, facts, 0)
            except Exception:  # of onnxruntime, which documents no classes, or of the system
                failures += 1
                assert entries(disk) == []
                continue
            assert made == find_entry(entry(disk), facts)
            break
        assert 0 < failures < 8
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_damaged_entry_is_replaced(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    first = make_entry(spec, facts, MIB)
    (entry(tmp_path) / WEIGHTS).write_bytes(b"")
    second = make_entry(spec, facts, MIB)
    assert (second.graph, second) == (first.graph, find_entry(entry(tmp_path), facts))


def test_an_entry_that_another_launch_published_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, facts = spec_in(tmp_path)
    real, theirs = optimise_graph._optimise, list[Entry]()

    def optimise(spec: SessionSpec, saved: Path) -> None:
        real(spec, saved)
        monkeypatch.setattr(optimise_graph, "_optimise", real)
        theirs.append(make_entry(spec, facts, MIB))

    monkeypatch.setattr(optimise_graph, "_optimise", optimise)
    assert [make_entry(spec, facts, MIB)] == theirs
    assert entry(tmp_path).parent == tmp_path / "graph_cache"


@pytest.mark.parametrize("moment", ["_optimise", "_publish"])
def test_a_kill_while_making_leaves_nothing_that_is_used(tmp_path: Path, moment: str) -> None:
    spec, facts = spec_in(tmp_path)
    program = f"""
import os, signal
from bulkinfer.runtime import optimise_graph
from bulkinfer.runtime.providers import SessionSpec
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
optimise_graph.{moment} = kill
optimise_graph.make_entry(SessionSpec({spec.graph!r}, "cpu", "fp32", 2, 1), {facts!r}, 0)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert find_entry(entry_folder(Path(spec.graph), facts), facts) is None
    (left,) = entries(tmp_path)
    assert left.name.startswith("_tmp-")
    made = make_entry(spec, facts, MIB)
    assert made == find_entry(entry(tmp_path), facts), "and what was left is removed"


def test_what_a_running_process_makes_stays(tmp_path: Path) -> None:
    spec, facts = spec_in(tmp_path)
    folder = tmp_path / "graph_cache"
    folder.mkdir()
    work = temporary_path(folder / "x")
    work.mkdir()
    write_owner_file(work)
    make_entry(spec, facts, MIB)
    assert work.is_dir()
