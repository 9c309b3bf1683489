"""data_dir.py: what names the folder of pictures, and what is said where nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.records.data_dir import resolve_data_dir


def test_where_pictures_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    for name in ("given", "environment", "datasets"):
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="no pictures given: use --data_dir, set DATA_DIR, or run partition_dataset"):
        resolve_data_dir(LaunchConfig())
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "environment"))
    assert resolve_data_dir(LaunchConfig()) == tmp_path / "environment"
    (tmp_path / "datasets" / "dataset.json").touch()
    assert resolve_data_dir(LaunchConfig()) == Path("datasets")
    assert resolve_data_dir(LaunchConfig(data_dir="given")) == Path("given")
    with pytest.raises(UsageError, match="missing is not a folder: give --data_dir a folder of pictures or of partitions"):
        resolve_data_dir(LaunchConfig(data_dir="missing"))
