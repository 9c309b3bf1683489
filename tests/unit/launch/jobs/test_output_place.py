"""output_place.py: which folders may become an output."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.launch.jobs.shards import with_shard
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.plan import check_at_once

from tests.launches import config_of, write_photos


@pytest.mark.parametrize("is_shard", [False, True])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("logs", "is or holds logs, the folder of --log_path"),
        ("models", "is or holds models, the folder of --model_path"),
        (".", "is or holds logs, the folder of --log_path"),
        ("link", "is or holds models, the folder of --model_path"),
    ],
)
def test_a_folder_of_logs_or_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str, is_shard: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("models")
    shard = {"shard": "1/2", "batches_per_step": 1} if is_shard else {}
    config = config_of(tmp_path, model_path="models", log_path="logs", output=output, **shard)
    with pytest.raises(
        UsageError, match=f"^--output {with_shard(config).output} {message}: give a folder for the results alone"
    ):
        check_at_once(config)


def test_own_files_of_another_job(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", output=str(tmp_path / ".out.bulkinfer"))
    with pytest.raises(UsageError, match=r"\.out\.bulkinfer is kept for own files about other results: give another folder"):
        check_at_once(config)


def test_pictures_of_the_data_set(tmp_path: Path) -> None:
    for folder in ("a", "a-b", "b/c"):
        write_photos(tmp_path / "photos" / folder, 1)
    for output in ("a", "b", "b/c"):
        with pytest.raises(UsageError, match=f"--output .*/photos/{output} holds pictures of .*photos: give a folder for"):
            launch(config_of(tmp_path, engine="inline", output=str(tmp_path / "photos" / output)))
    assert launch(config_of(tmp_path, engine="inline", photos=1, output=str(tmp_path / "photos" / "out"))).exit_code == 0


def test_files_of_others_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").touch()
    config = config_of(tmp_path, engine="inline", photos=1)
    for expected in (True, False):  # the job that has begun there is not asked again
        caplog.clear()
        with caplog.at_level(logging.WARNING, "bulkinfer"):
            assert launch(config).exit_code == 0
        assert ("out holds other files, such as README.md: programs that read" in caplog.text) == expected


def test_a_folder_that_takes_no_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^/proc/x/y cannot be made: /proc takes no folders: give another folder"):
        launch(config_of(tmp_path, engine="inline", photos=1, output="/proc/x/y"))
    assert [name for name in os.listdir(tmp_path / "logs") if not name.startswith(".")] == [], "nothing was logged"
