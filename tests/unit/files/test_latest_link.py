"""latest_link.py: logs/latest points to the newest folder, also when that is named by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.files.latest_link import point_latest


def test_it_points_to_the_newest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        point_latest(tmp_path / name)
        assert os.readlink(tmp_path / "latest") == name
    point_latest(tmp_path / "latest")
    assert os.readlink(tmp_path / "latest") == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "one", "two"]


def test_a_real_folder_called_latest_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine.txt").write_text("keep")
    (tmp_path / "job").mkdir()
    point_latest(tmp_path / "job")
    assert (tmp_path / "latest" / "mine.txt").read_text() == "keep"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job", "latest"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"warning: {tmp_path / 'latest'} cannot be made to point to job: ")
    assert err.count("\n") == 1
