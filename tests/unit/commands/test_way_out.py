"""way_out.py: what to do about a place that the operating system refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from bulkinfer.commands.way_out import way_out
from bulkinfer.config import GetModelConfig, LaunchConfig


def refusal(path: Path | None, code: int = errno.EACCES) -> OSError:
    return OSError(code, os.strerror(code), None if path is None else str(path))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `out`, which can be read and not written to, and `secret`, which cannot even be read."""
    monkeypatch.chdir(tmp_path)
    for name in ("out", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    plain = os.access

    def access(path: str | os.PathLike[str], mode: int) -> bool:
        parts = Path(path).parts
        if "secret" in parts or ("out" in parts and mode & os.W_OK):
            return False
        return plain(path, mode)

    monkeypatch.setattr(os, "access", access)
    return tmp_path


def test_what_is_written_goes_elsewhere_or_may_be_written(place: Path) -> None:
    config = LaunchConfig(data_dir="photos", output="out")
    other = "give another --output, or change the mode or owner of "
    for path in ("out/new", "out/new/newer", "out"):
        assert way_out(config, refusal(Path(path))) == f"{other}out"
    assert way_out(config, refusal(place / "out" / "new")) == f"{other}{place}/out"
    assert way_out(config, refusal(Path("out/file"))) == f"{other}out", "the folder decides what can be replaced in it"
    assert way_out(config, refusal(Path("out/new"), errno.EPERM)) == f"{other}out"
    assert way_out(config, refusal(Path("out/new"), errno.EROFS)) == "give another --output"
    assert way_out(LaunchConfig(log_path="out"), refusal(Path("out/job"))) == f"{other.replace('output', 'log_path')}out"
    assert way_out(GetModelConfig(model_path="out"), refusal(Path("out/x"))) == f"{other.replace('output', 'model_path')}out"
    for option in ("output", "log_path", "model_path"):  # all lie in the same folder
        told = way_out(LaunchConfig(output="output", log_path="log_path", model_path="model_path"), refusal(Path(option, "x")))
        assert told == f"give another --{option}, or change the mode or owner of ."


def test_what_is_read_has_one_way_out(place: Path) -> None:
    change = "change the mode or owner of "
    config = LaunchConfig(data_dir="secret", output="secret")
    assert way_out(config, refusal(Path("secret/file"))) == f"{change}secret/file"
    assert way_out(config, refusal(Path("photos/none"))) == f"{change}."
    assert way_out(config, refusal(place / "else", errno.EROFS)) == "the file system is read-only"


def test_other_errors_have_none(place: Path) -> None:
    config = LaunchConfig(output="out")
    assert way_out(config, refusal(place / "out" / "x", errno.ENOSPC)) == ""
    assert way_out(config, refusal(None)) == ""
