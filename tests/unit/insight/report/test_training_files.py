"""The folder of a training run that a word names."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.insight.report.training_files import training_folder

from tests.reports import write_run


def test_which_folder_is_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "logs" / "run")
    logs = str(tmp_path / "logs")
    assert training_folder(str(folder), logs) == folder
    assert training_folder("run", logs) == folder
    assert training_folder("", logs) is None
    (tmp_path / "logs" / "latest").symlink_to("run")
    assert training_folder("", logs) == tmp_path / "logs" / "latest"
    assert training_folder(str(tmp_path), logs) is None
