"""calibration_set.py: which pictures are taken, and what is told of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.export.variants import calibration_set as calibration_pictures
from bulkinfer.export.variants.calibration_set import sample_pictures

from tests import pictures
from tests.logged import logged
from tests.models import RECIPE


def photos(folder: Path, count: int, **more: bytes) -> Path:
    pictures.write_files(folder, {f"{n:03d}.png": pictures.encode(pictures.photo(seed=n)) for n in range(count)})
    pictures.write_files(folder, {name.replace("_", "."): data for name, data in more.items()})
    return folder


def test_a_third_is_held_out_and_nothing_is_in_both(tmp_path: Path) -> None:
    said: list[str] = []
    sample = logged(said, sample_pictures, str(photos(tmp_path / "photos", 36)), RECIPE)
    assert (len(sample.calibrate_NHWC), len(sample.held_out_NHWC)) == (24, 12)
    everything = np.concatenate([sample.calibrate_NHWC, sample.held_out_NHWC])
    assert len({image.tobytes() for image in everything}) == 36
    assert said == [f"calibration: 36 of 36 pictures in {tmp_path / 'photos'}: 24 to calibrate, 12 held out to judge"]


def test_all_may_judge(tmp_path: Path) -> None:
    said: list[str] = []
    sample = logged(said, sample_pictures, str(photos(tmp_path, 36)), RECIPE, all_held_out=True)
    assert (len(sample.calibrate_NHWC), len(sample.held_out_NHWC)) == (0, 36)
    assert said == [f"calibration: 36 of 36 pictures in {tmp_path}: all to judge"]
    assert sample.sha256 == logged(said, sample_pictures, str(tmp_path), RECIPE).sha256


def test_the_choice_is_the_same_in_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_pictures, "MAX_PICTURES", 33)
    one, two = (sample_pictures(str(photos(tmp_path / name, 40)), RECIPE) for name in ("one", "two"))
    assert one.sha256 == two.sha256
    assert len(one.calibrate_NHWC) + len(one.held_out_NHWC) == 33


def test_large_pictures_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_pictures, "MAX_BYTES", 34 * RECIPE.height * RECIPE.width * 3)
    sample = sample_pictures(str(photos(tmp_path, 40)), RECIPE)
    assert len(sample.calibrate_NHWC) + len(sample.held_out_NHWC) == 34


def test_unreadable_and_repeated_ones_are_counted_told_and_left_out(tmp_path: Path) -> None:
    said: list[str] = []
    photos(tmp_path, 32, copy_png=pictures.encode(pictures.photo(seed=3)), a_jpg=b"", b_jpg=pictures.HTML_PAGE)
    sample = logged(said, sample_pictures, str(tmp_path), RECIPE)
    assert len(sample.calibrate_NHWC) + len(sample.held_out_NHWC) == 32
    (line,) = said
    assert "32 of 35 pictures" in line
    assert ", 1 repeated ones left out, 2 that cannot be read left out (such as " in line


@pytest.mark.parametrize(("count", "told"), [(31, "31 of 31 pictures"), (0, "holds no pictures")])
def test_too_few_are_refused(tmp_path: Path, count: int, told: str) -> None:
    tmp_path.joinpath("photos").mkdir()
    with pytest.raises(UsageError, match=f"^--calibration_dir: .*{told}"):
        sample_pictures(str(photos(tmp_path / "photos", count)), RECIPE)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--calibration_dir: .*does not exist"):
        sample_pictures(str(tmp_path / "nowhere"), RECIPE)


def test_a_folder_of_broken_files_comes_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_pictures, "MAX_PICTURES", 32)
    pictures.write_files(tmp_path, {f"{n:03d}.jpg": b"" for n in range(200)})
    with pytest.raises(UsageError, match=r"0 of 200 pictures in .*, 128 that cannot be read"):
        sample_pictures(str(tmp_path), RECIPE)
