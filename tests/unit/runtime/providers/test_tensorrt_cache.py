"""providers/tensorrt_cache.py: engines that match their record stay, all others are removed, and why is returned."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.runtime.providers.tensorrt_cache import LOCK_FILE, RECORD_FILE, record, remove_invalid

from tests.temporaries import temporary_name

BUILT_BY = {"onnxruntime": "1.31.1", "tensorrt-cu13": "10.9"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two engines that are recorded, and a lock."""
    for name in ("a.engine", "b.engine", LOCK_FILE):
        (tmp_path / name).write_text(f"engine {name}")
    record(tmp_path, BUILT_BY)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_empty_folder_is_in_order(tmp_path: Path) -> None:
    assert remove_invalid(tmp_path, BUILT_BY) == ""


def test_what_is_as_recorded_stays(folder: Path) -> None:
    assert remove_invalid(folder, BUILT_BY) == ""
    assert names(folder) == [LOCK_FILE, "a.engine", "b.engine", RECORD_FILE]


def test_one_that_was_cut_off_goes(folder: Path) -> None:
    (folder / "b.engine").write_text("engine")
    assert remove_invalid(folder, BUILT_BY) == "b.engine differs from its record"
    assert names(folder) == [LOCK_FILE, "a.engine", RECORD_FILE]


def test_one_that_was_never_finished_goes(folder: Path) -> None:
    """Whoever built it was killed before it could record it."""
    (folder / "c.engine").write_text("half")
    assert remove_invalid(folder, BUILT_BY) == "c.engine differs from its record"


def test_those_of_other_versions_go(folder: Path) -> None:
    told = remove_invalid(folder, {"onnxruntime": "1.32.0"})
    assert told == "they were built by onnxruntime 1.31.1, tensorrt-cu13 10.9, now onnxruntime 1.32.0"
    assert names(folder) == [LOCK_FILE, RECORD_FILE]


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 1, "files": 3}', '{"format": 1, "files": {"a.engine": 1}}', '{"format": 9}']
)
def test_a_damaged_record_vouches_for_nothing(folder: Path, text: str) -> None:
    (folder / RECORD_FILE).write_text(text)
    assert remove_invalid(folder, BUILT_BY) != ""
    assert names(folder) == [LOCK_FILE, RECORD_FILE]


def test_what_those_write_who_wait_for_the_lock_is_no_engine(folder: Path) -> None:
    waiting = [temporary_name("00aa"), f"{LOCK_FILE}.heir-0123456789abcdef"]
    for name in waiting:
        (folder / name).write_text("{}")
    assert remove_invalid(folder, BUILT_BY) == ""
    record(folder, BUILT_BY)
    for name in waiting:
        (folder / name).unlink()
    assert remove_invalid(folder, BUILT_BY) == ""
