"""changed_pictures.py: a resume warns of pictures that were replaced under their names, also by some of the same size."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.jobs.changed_pictures import TIMES_FILE
from bulkinfer.launch.launcher import launch

from tests.archives import write_tar
from tests.commands import records
from tests.launches import config_of

WARNING = "changed since the rows in"


@pytest.fixture
def config(tmp_path: Path) -> LaunchConfig:
    """A finished job on ten pictures, in parts of four."""
    made = config_of(tmp_path, engine="inline", batches_per_step=1)
    for number, path in enumerate(sorted((tmp_path / "photos").iterdir())):
        os.utime(path, ns=(0, 10**18 + number))
        path.write_bytes(path.read_bytes().ljust(200, b"\0"))  # all of one size
        os.utime(path, ns=(0, 10**18 + number))
    assert launch(made).exit_code == 0
    return made


def photo(config: LaunchConfig, number: int) -> Path:
    return sorted(Path(config.data_dir).iterdir())[number]


def swap(config: LaunchConfig, number: int, other: int) -> None:
    """Put a copy of another picture, of the same size and with its own time, in the place of a picture."""
    shutil.copy2(photo(config, other), photo(config, number))


def warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if WARNING in line]


def lose_part(config: LaunchConfig, first: int) -> None:
    next(Path(config.output).glob(f"part-*-{first:010d}-*")).unlink()


def times(config: LaunchConfig) -> list[int]:
    return [time - 10**18 for time in pq.read_table(own_folder(Path(config.output)) / TIMES_FILE)["mtime_ns"].to_pylist()]


def test_a_picture_that_was_replaced_by_one_of_its_size(config: LaunchConfig, capsys: pytest.CaptureFixture[str]) -> None:
    """Also by an older one, and with nothing left to do; the warning comes again, because the rows stay."""
    swap(config, 5, 1)
    swap(config, 8, 9)
    before = records(Path(config.output))
    for dry_run in (False, True, False):
        capsys.readouterr()
        assert launch(replace(config, dry_run=dry_run)).exit_code == 0
        (line,) = warnings(capsys.readouterr().err)
        assert re.search(r"warning: 2 pictures changed since the rows in .*out were made, first 005-cyan\.png: ", line), line
        assert line.endswith("these rows stay as they are; --overwrite runs all 10 pictures again")
    assert records(Path(config.output)) == before
    capsys.readouterr()
    assert launch(replace(config, overwrite=True)).exit_code == 0
    assert records(Path(config.output))["005-cyan.png"]["class_names"][0] == "red"
    assert launch(config).exit_code == 0
    assert warnings(capsys.readouterr().err) == []


def test_pictures_that_have_no_row_yet_are_read_as_they_are_now(
    config: LaunchConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_part(config, 4)
    swap(config, 5, 1)
    assert launch(config).exit_code == 0
    assert warnings(capsys.readouterr().err) == []
    assert records(Path(config.output))["005-cyan.png"]["class_names"][0] == "red"
    assert times(config) == [0, 1, 2, 3, 4, 1, 6, 7, 8, 9]
    swap(config, 5, 2)
    assert launch(config).exit_code == 0
    assert warnings(capsys.readouterr().err)[0].count("1 picture changed") == 1


def test_a_job_that_goes_on_with_what_it_listed_names_changed_sizes_too(
    config: LaunchConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_part(config, 4)
    photo(config, 0).write_bytes(photo(config, 1).read_bytes() + b"\0")
    photo(config, 6).unlink()  # another number for what follows
    shutil.copy2(photo(config, 1), Path(config.data_dir) / "005-between.png")
    assert launch(config).exit_code == 3
    told = capsys.readouterr().err
    assert "it goes on with the 10 pictures listed then" in told
    (line,) = warnings(told)
    assert "1 picture changed" in line
    assert "first 000-black.png" in line


def test_skipped_pictures_have_no_time(config: LaunchConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy2(photo(config, 1), Path(config.data_dir) / "0031-new.png")
    shutil.copy2(photo(config, 2), Path(config.data_dir) / "new.png")
    more = replace(config, output=str(tmp_path / "more"), skip_done=(config.output,))
    assert launch(more).records == 2
    assert times(more) == [1, 2]
    os.utime(Path(config.data_dir) / "new.png")
    assert launch(more).exit_code == 0
    assert "first new.png" in warnings(capsys.readouterr().err)[0]


def test_a_limit(config: LaunchConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = replace(config, output=str(tmp_path / "some"), limit=3)
    assert launch(some).records == 3
    os.utime(photo(config, 5))
    assert launch(some).exit_code == 0
    assert (times(some), warnings(capsys.readouterr().err)) == ([0, 1, 2], [])


def test_rows_of_an_earlier_version_are_compared_from_now_on(config: LaunchConfig, capsys: pytest.CaptureFixture[str]) -> None:
    (own_folder(Path(config.output)) / TIMES_FILE).unlink()
    os.utime(photo(config, 1))
    assert launch(config).exit_code == 0
    assert warnings(capsys.readouterr().err) == []
    os.utime(photo(config, 1), ns=(0, 0))
    assert launch(config).exit_code == 0
    assert "first 001-red.png" in warnings(capsys.readouterr().err)[0]


@pytest.mark.parametrize("content", [b"", b"PAR1", None])
def test_damaged_times_cost_one_warning(
    config: LaunchConfig, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own_folder(Path(config.output)) / TIMES_FILE
    data, chunk = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0)
    last = 4 + chunk.total_compressed_size - 2
    path.write_bytes(data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :] if content is None else content)
    assert launch(config).exit_code == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert f"{TIMES_FILE} is damaged" in line
    assert times(config) == list(range(10)), "they are written again"
    assert launch(config).exit_code == 0
    assert capsys.readouterr().err == ""


def test_times_are_those_of_the_folder_and_a_copy_of_it_keeps_them(
    config: LaunchConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert times(config) == list(range(10))
    shutil.copytree(config.data_dir, tmp_path / "moved")  # as cp -p
    assert launch(replace(config, data_dir=str(tmp_path / "moved"))).exit_code == 0
    assert warnings(capsys.readouterr().err) == []
    for path in (tmp_path / "moved").iterdir():
        os.utime(path)
    assert launch(replace(config, data_dir=str(tmp_path / "moved"))).exit_code == 0
    assert "warning: 10 pictures changed" in warnings(capsys.readouterr().err)[0]


def test_pictures_in_partitions_are_not_looked_at(config: LaunchConfig, tmp_path: Path) -> None:
    from bulkinfer.records.partitions.make_partitions import partition_dataset

    partition_dataset(config.data_dir, partitions=2, output=tmp_path / "parts")
    other = replace(config, data_dir=str(tmp_path / "parts"), output=str(tmp_path / "other"))
    assert launch(other).exit_code == 0
    assert not (own_folder(Path(other.output)) / TIMES_FILE).exists()
    assert np.all(np.diff(times(config)) == 1)


def test_pictures_of_an_archive_that_was_written_again(
    config: LaunchConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have the time of their archive: what changed in it is not known."""
    files = {path.name: path.read_bytes() for path in sorted(Path(config.data_dir).iterdir())}
    names = list(files)
    for number, part in enumerate((names[:5], names[5:])):
        write_tar(tmp_path / "tars" / f"{number}.tar", {name: files[name] for name in part})
    packed = replace(config, data_dir=str(tmp_path / "tars"), output=str(tmp_path / "packed"))
    assert launch(packed).records == 10
    assert launch(packed).exit_code == 0
    assert warnings(capsys.readouterr().err) == []
    os.utime(tmp_path / "tars" / "1.tar")
    assert launch(packed).exit_code == 0
    (line,) = warnings(capsys.readouterr().err)
    assert "warning: 5 pictures changed since" in line
    assert "first 1.tar/005-cyan.png" in line


def test_a_shard_looks_at_its_own_pictures(config: LaunchConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = replace(config, shard="1/2", output=str(tmp_path / "both"))
    assert launch(shard).records == 6
    os.utime(photo(config, 5))
    assert launch(shard).exit_code == 0
    assert warnings(capsys.readouterr().err) == []
    os.utime(photo(config, 9))
    assert launch(shard).exit_code == 0
    assert "first 009-red.png: these rows stay as they are; --overwrite runs all 6 pictures again" in capsys.readouterr().err
