"""kept.py: the folder of a run, what it keeps, and which run --resume goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.spec.entry import Entry, Metric, Variant
from bulkinfer.bench.spec.kept import opened, resume_command
from bulkinfer.bench.spec.run_entry import DONE, FAILED, description_of
from bulkinfer.errors import BulkinferError, LockedError, UsageError

CONDITIONS = {"is_quick": False, "hardware": {"processor": "p", "cores": (0, 1)}, "system": "s", "versions": {"numpy": "2"}}
ENTRY = Entry("a", "echo", (Variant("a", {}),), (Metric("rate", regexp="x"),))


def result(status: str = DONE) -> dict[str, Any]:
    return {**description_of(ENTRY), "status": status}


def test_finished_entries_are_found_again(tmp_path: Path) -> None:
    spec = tmp_path / "f.yml"
    with opened(tmp_path / "logs", spec, CONDITIONS, is_resumed=False) as kept:
        assert kept.finished(ENTRY) is None
        kept.keep(ENTRY, result())
        folder = kept.folder
    with opened(tmp_path / "logs", spec, CONDITIONS, is_resumed=True) as kept:
        assert kept.folder == folder
        assert kept.finished(ENTRY) == {**result(), "variants": {"a": {}}}
        changed = Entry("a", "echo something else", ENTRY.variants, ENTRY.metrics)
        assert kept.finished(changed) is None
        kept.keep(ENTRY, result(FAILED))
        assert kept.finished(ENTRY) is None  # it is run again


def test_what_an_interrupted_run_left_is_moved_away(tmp_path: Path) -> None:
    with opened(tmp_path, tmp_path / "f.yml", CONDITIONS, is_resumed=False) as kept:
        for _ in range(2):
            (kept.folder / "a").mkdir()
            kept.room_for(ENTRY)
        assert sorted(path.name for path in kept.folder.glob("a*")) == ["a.interrupted-1", "a.interrupted-2"]


def test_a_run_goes_on_alone_and_under_the_same_conditions(tmp_path: Path) -> None:
    spec = tmp_path / "f.yml"
    with pytest.raises(UsageError, match=r"holds no unfinished run of .*: leave --resume out"):
        opened(tmp_path / "logs", spec, CONDITIONS, is_resumed=True).__enter__()
    with opened(tmp_path / "logs", spec, CONDITIONS, is_resumed=False) as kept:
        with pytest.raises(LockedError, match="another bulkinfer bench uses"):
            opened(tmp_path / "logs", spec, CONDITIONS, is_resumed=True).__enter__()
        for name, words in (("is_quick", "other --quick"), ("hardware", "other hardware"), ("versions", "other versions")):
            with pytest.raises(UsageError, match=words):
                opened(tmp_path / "logs", spec, CONDITIONS | {name: None}, is_resumed=True).__enter__()
        (kept.folder / "benchmark_results.json").touch()
    with pytest.raises(UsageError, match="holds no unfinished run"):
        opened(tmp_path / "logs", spec, CONDITIONS, is_resumed=True).__enter__()


def test_the_command_that_goes_on() -> None:
    config = BenchConfig(spec="my file.yml", benchmark=("res*",), quick=True, log_path="elsewhere")
    assert resume_command(config) == "bulkinfer bench --spec 'my file.yml' 'res*' --quick --log_path elsewhere --resume"


def test_a_run_whose_state_is_lost_is_named(tmp_path: Path) -> None:
    with opened(tmp_path, tmp_path / "f.yml", CONDITIONS, is_resumed=False) as kept:
        (kept.folder / "benchmarks.json").write_bytes(b"")
    with pytest.raises(BulkinferError, match=rf"benchmarks\.json .*: remove {kept.folder}, and an earlier run goes on"):
        opened(tmp_path, tmp_path / "f.yml", CONDITIONS, is_resumed=True).__enter__()


def test_a_log_folder_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--log_path: No such file or directory: /proc/.*: give another folder"):
        opened(Path("/proc/none"), tmp_path / "f.yml", CONDITIONS, is_resumed=False).__enter__()
