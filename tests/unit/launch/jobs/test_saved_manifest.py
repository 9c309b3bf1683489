"""saved_manifest.py: an unfinished job of a plain folder goes on with what it listed, whatever came of the folder since."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.launch.launcher import launch
from bulkinfer.results.verify import verify
from PIL import Image

from tests import pictures
from tests.commands import records
from tests.launches import config_of


def changed(folder: Path) -> None:
    """A picture more, one less, one of another size, and a part of the results lost."""
    photos = folder / "photos"
    (photos / "004-yellow.png").write_bytes(pictures.encode(Image.new("RGB", (90, 90), (255, 255, 0))))
    (photos / "999-red.png").write_bytes(pictures.encode(Image.new("RGB", (40, 40), (255, 0, 0))))
    (photos / "006-magenta.png").unlink()


def test_an_unfinished_job_goes_on_with_what_it_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    before = records(tmp_path / "out")
    lost = sorted((tmp_path / "out").glob("part-*"))[1]  # records 4 to 8
    lost.unlink()
    changed(tmp_path)
    assert launch(config).exit_code == 3
    assert "has changed since the job in" in capsys.readouterr().err
    after = records(tmp_path / "out")
    assert after.keys() == before.keys()
    assert {key for key, row in after.items() if row["status"] == "error"} == {"006-magenta.png"}
    assert after["004-yellow.png"]["width"] == 90
    assert all(after[key] == before[key] for key in before if key not in ("004-yellow.png", "006-magenta.png"))
    assert verify(tmp_path / "out").faults == []


def test_a_complete_job_is_another_one_once_its_folder_has_changed(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    changed(tmp_path)
    with pytest.raises(
        UsageError, match=r"began: 2 of the \d+ pictures .*: infer_launch .*--skip_done .*out .*--output .*out-2 "
    ):
        launch(config)


def test_without_its_listing_or_with_other_options_it_is_another_job(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    sorted((tmp_path / "out").glob("part-*"))[1].unlink()
    changed(tmp_path)
    with pytest.raises(UsageError, match=r"differs in pictures \(other names or sizes\); max_pixels"):
        launch(config_of(tmp_path, engine="inline", batches_per_step=1, photos=0, max_pixels=77))
    for path in (tmp_path / "logs").glob("tiny-*/manifest*"):
        os.unlink(path)
    with pytest.raises(UsageError, match=r"began: \d+ of the \d+ pictures there now have no ok row"):
        launch(config)


def test_another_folder_of_pictures_is_another_job(tmp_path: Path) -> None:
    """Also while the job is unfinished: pictures of two folders are never mixed under one job."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    sorted((tmp_path / "out").glob("part-*"))[1].unlink()
    before = records(tmp_path / "out")
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "photos", other)
    changed_one = other / "004-yellow.png"
    changed_one.write_bytes(pictures.encode(Image.new("RGB", (90, 90), (255, 255, 0))))
    with pytest.raises(
        UsageError, match=rf"holds the results of a job on other pictures \(pictures in .*{config.data_dir}: 10\)"
    ):
        launch(replace(config, data_dir=str(other)))
    assert records(tmp_path / "out") == before


def test_a_copy_of_the_folder_goes_on_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    shutil.copytree(tmp_path / "photos", tmp_path / "moved")
    assert launch(replace(config, data_dir=str(tmp_path / "moved"))).exit_code == 0
    assert f"began on pictures in {tmp_path / 'photos'}; its rows stay" in capsys.readouterr().err
