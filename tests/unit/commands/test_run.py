"""bulkinfer run with annotations: no rows hold them, and the job and its commands keep them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from bulkinfer.commands import run
from bulkinfer.config import LaunchConfig, RunConfig
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.options import RetryConfig
from bulkinfer.launch.retry import retry
from bulkinfer.results.find_output import require_job

from tests.commands import records
from tests.launches import config_of


def words_of(config: LaunchConfig) -> list[str]:
    names = ("model_name", "model_path", "log_path", "batch_size", "device", "precision", "engine")
    return [word for name in names for word in (f"--{name}", str(getattr(config, name)))]


def test_annotations_stay_with_the_job(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    names = sorted(path.name for path in (tmp_path / "photos").iterdir())
    whole = (tmp_path / "photos" / names[4]).read_bytes()
    (tmp_path / "photos" / names[4]).write_bytes(b"no picture")
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    (tmp_path / "coco.json").write_text(json.dumps({"images": images, "categories": [], "annotations": []}))
    with_labels = RunConfig(**asdict(replace(config, labels=str(tmp_path / "coco.json"))))
    assert launch(with_labels).exit_code == 3
    output = Path(config.output)
    assert {row["label"] for row in records(output).values()} == {None}
    assert require_job(output).config["labels"] == str(tmp_path / "coco.json")
    assert launch(config).exit_code == 3, "the same job: its rows do not depend on annotations"
    (tmp_path / "photos" / names[4]).write_bytes(whole)
    assert retry(RetryConfig(str(output))).exit_code == 0


def test_annotations_are_checked_before_pictures_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline")
    missing = ["--labels", str(tmp_path / "missing.json")]
    assert run.main([config.data_dir, *words_of(config), *missing, "--output", config.output]) == 2
    assert "missing.json" in capsys.readouterr().err
    assert not Path(config.output).exists()


def test_without_pictures_none_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    config = config_of(tmp_path / "home", engine="inline", synthetic=True)
    assert run.main([*words_of(config), "--labels", "coco.json", "--synthetic", "--dry_run"]) == 0
    assert capsys.readouterr().err == ""
