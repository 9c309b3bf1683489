"""latest_link.py: logs/latest points to the newest folder, also when that is named by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.files.latest_link import linked_folder, point_latest


def test_it_points_to_the_newest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        point_latest(tmp_path / name)
        assert os.readlink(tmp_path / "latest") == name
    point_latest(tmp_path / "latest")
    assert os.readlink(tmp_path / "latest") == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "one", "two"]


def test_a_signal_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "job").mkdir()
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        point_latest(tmp_path / "job")
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


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


@pytest.mark.parametrize("name", ["job", "latest"])
def test_a_folder_on_another_disk_has_the_link_beside_its_own_link(tmp_path: Path, name: str) -> None:
    logs, disk = tmp_path / "logs", tmp_path / "disk"
    for folder in (logs, disk / "far"):
        folder.mkdir(parents=True)
    (logs / "job").symlink_to(disk / "far")
    (logs / "latest").symlink_to("job")
    point_latest(logs / name)
    assert os.readlink(logs / "latest") == "job"
    assert [path.name for path in disk.iterdir()] == ["far"]
    assert linked_folder(logs / "latest") == logs / "job"
    assert linked_folder(logs / "job") == logs / "job"


def test_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path / "job")
    point_latest(Path("."))
    assert os.readlink(tmp_path / "latest") == "job"
