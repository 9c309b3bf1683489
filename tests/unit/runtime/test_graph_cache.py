"""graph_cache.py: an entry is used only if it is sound and of this graph, this machine and this runtime."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.json_file import write_json
from bulkinfer.host.versions import processor, versions
from bulkinfer.runtime.graph_cache import (
    FOLDER,
    GRAPH,
    RECORD,
    VARIABLE,
    WEIGHTS,
    entry_folder,
    facts_of,
    find_entry,
    is_switched_off,
    remove_superseded,
    stamp_of,
    write_record,
)

from tests.flips import Flip


def facts(folder: Path, **changes: str) -> dict[str, str]:
    return facts_of(folder / "model_4.onnx", "a" * 64, "b" * 64) | changes


def write_entry(folder: Path, its: dict[str, str]) -> Path:
    """An entry as optimise_graph publishes it, of bytes that are no graph."""
    entry = entry_folder(folder / its["graph"], its)
    entry.mkdir(parents=True)
    (entry / GRAPH).write_bytes(b"graph" * 10)
    (entry / WEIGHTS).write_bytes(b"weights" * 100)
    write_record(entry, its)
    return entry


@pytest.mark.parametrize(("value", "is_off"), [(None, False), ("", False), ("on", False), ("off", True)])
def test_the_variable(monkeypatch: pytest.MonkeyPatch, value: str | None, is_off: bool) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert is_switched_off() is is_off


def test_another_word_in_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no")
    with pytest.raises(UsageError, match=r"BULKINFER_GRAPH_CACHE is 'no': set it to on or off, or unset it"):
        is_switched_off()


def test_the_facts_are_those_of_graph_machine_and_runtime(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert (found["graph"], found["graph_sha256"], found["weights_sha256"]) == ("model_4.onnx", "a" * 64, "b" * 64)
    assert found["processor"] == processor()
    assert found["onnxruntime"] == versions()["onnxruntime"]


@pytest.mark.parametrize("name", ["graph", "graph_sha256", "weights_sha256", "processor", "instruction_sets", "onnxruntime"])
def test_each_fact_decides_the_folder(tmp_path: Path, name: str) -> None:
    graph = tmp_path / "model_4.onnx"
    one, other = entry_folder(graph, facts(tmp_path)), entry_folder(graph, facts(tmp_path, **{name: "another"}))
    assert one != other
    assert one.parent == other.parent == tmp_path / FOLDER


def test_a_sound_entry_is_found(tmp_path: Path) -> None:
    assert find_entry(entry_folder(tmp_path / "model_4.onnx", facts(tmp_path)), facts(tmp_path)) is None
    entry = write_entry(tmp_path, facts(tmp_path))
    found = find_entry(entry, facts(tmp_path))
    assert found is not None
    assert (found.graph, found.stamp) == (str(entry / GRAPH), stamp_of(str(entry / GRAPH)))


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS, RECORD])
def test_no_damaged_file_is_used(tmp_path: Path, name: str) -> None:
    entry = write_entry(tmp_path, facts(tmp_path))
    whole = (entry / name).read_bytes()
    Flip(name, len(whole) // 2 * 8).apply(entry)
    flipped = (entry / name).read_bytes()
    damages = {"cut": whole[: len(whole) // 2], "empty": b"", "longer": whole + b"x" * 10, "flipped": flipped}
    for what, data in damages.items():
        (entry / name).write_bytes(data)
        with pytest.raises(DamagedError, match=r"is damaged"):
            pytest.fail(f"{what}: {find_entry(entry, facts(tmp_path))}")
    (entry / name).unlink()
    with pytest.raises(DamagedError, match=r"is damaged"):
        find_entry(entry, facts(tmp_path))


def test_a_record_of_something_else_is_not_used(tmp_path: Path) -> None:
    entry = write_entry(tmp_path, facts(tmp_path))
    other = facts(tmp_path, onnxruntime="0.0.1")
    entry.rename(entry_folder(tmp_path / "model_4.onnx", other))
    with pytest.raises(DamagedError, match=r"is damaged \(its record is of something else\)"):
        find_entry(entry_folder(tmp_path / "model_4.onnx", other), other)


def test_a_record_of_another_structure_is_not_used(tmp_path: Path) -> None:
    entry = write_entry(tmp_path, facts(tmp_path))
    write_json(entry / RECORD, {"facts": facts(tmp_path), "files": {GRAPH: "none"}})
    with pytest.raises(DamagedError, match=r"record.json: files.graph.onnx is 'none'"):
        find_entry(entry, facts(tmp_path))


def test_a_stamp_changes_with_every_write_and_every_other_file(tmp_path: Path) -> None:
    entry = write_entry(tmp_path, facts(tmp_path))
    weights, graph = entry / WEIGHTS, str(entry / GRAPH)
    os.utime(weights, ns=(1, 1))  # two writes within a tick of the kernel's clock have the same time
    stamps = [stamp_of(graph)]
    weights.write_bytes(weights.read_bytes())
    stamps.append(stamp_of(graph))
    before = weights.stat()
    shutil.copy2(weights, tmp_path / "copy")
    os.replace(tmp_path / "copy", weights)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    stamps.append(stamp_of(graph))
    weights.unlink()
    stamps.append(stamp_of(graph))
    assert len(set(stamps)) == 4
    assert stamps[-1] == ""


def test_what_is_superseded_is_removed(tmp_path: Path) -> None:
    ours = facts(tmp_path)
    stay = [
        write_entry(tmp_path, ours),
        write_entry(tmp_path, ours | {"graph": "model_8.onnx", "graph_sha256": "c" * 64}),
        write_entry(tmp_path, ours | {"processor": "another machine", "onnxruntime": "1.0"}),
    ]
    go = [
        write_entry(tmp_path, ours | {"onnxruntime": "1.0"}),
        write_entry(tmp_path, ours | {"weights_sha256": "d" * 64}),
        write_entry(tmp_path, ours | {"graph_sha256": "d" * 64}),
        write_entry(tmp_path, ours | {"graph": "model_8.onnx", "onnxruntime": "1.0"}),
        write_entry(tmp_path, ours | {"graph": "model_2.onnx"}),
    ]
    (go[-1] / RECORD).unlink()
    users = tmp_path / FOLDER / "notes"
    users.mkdir()
    remove_superseded(tmp_path / FOLDER, ours)
    assert sorted((tmp_path / FOLDER).iterdir()) == sorted([*stay, users])
