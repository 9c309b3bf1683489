"""own_folder.py: where bulkinfer's own files about a results folder lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.files import own_folder as own_folder_module
from bulkinfer.files.own_folder import make_own_folder, own_folder


def test_it_lies_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "a" / "out"
    assert own_folder(output) == tmp_path / "a" / ".out.bulkinfer"
    assert make_own_folder(output) == tmp_path / "a" / ".out.bulkinfer"
    assert (own_folder(output).is_dir(), output.exists()) == (True, False)
    monkeypatch.chdir(tmp_path / "a")
    assert own_folder(Path("out")) == Path(".out.bulkinfer")
    output.mkdir()
    monkeypatch.chdir(output)
    assert own_folder(Path()) == own_folder(Path("../out/")).resolve() == tmp_path / "a" / ".out.bulkinfer"


def test_every_name_of_a_folder_leads_to_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert own_folder(tmp_path / "link") == own_folder(tmp_path / "real")


def test_a_folder_in_an_own_folder_holds_its_own_files_itself(tmp_path: Path) -> None:
    assert own_folder(tmp_path / ".out.bulkinfer" / "_retry") == tmp_path / ".out.bulkinfer" / "_retry"


def test_where_nothing_can_lie_beside_it_lies_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 250)
    assert own_folder(long) == long / ".bulkinfer"
    assert own_folder(Path("/")) == Path("/.bulkinfer")
    mount = next(Path(path) for path in ("/proc", "/dev/shm") if os.path.ismount(path))
    assert own_folder(mount) == mount / ".bulkinfer"
    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(own_folder_module.os, "access", lambda *_: False)
        assert make_own_folder(output) == output / ".bulkinfer"
    assert own_folder(output) == output / ".bulkinfer"  # and stays there
