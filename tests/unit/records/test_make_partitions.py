"""make_partitions.py as Python calls it; tests/e2e/test_partition_dataset.py holds what it does."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from bulkinfer.config import PartitionConfig
from bulkinfer.errors import UsageError
from bulkinfer.records.make_partitions import partition_dataset

from tests.launches import write_photos
from tests.logged import logged


def test_parameters_are_the_flags_with_their_defaults() -> None:
    parameters = inspect.signature(partition_dataset).parameters
    assert {name: given.default for name, given in parameters.items()} == {
        field.name: field.default for field in fields(PartitionConfig)
    }


def test_the_data_set_comes_back_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = write_photos(tmp_path / "photos", 10)
    lines: list[str] = []
    dataset = logged(lines, partition_dataset, photos, partitions=3, output=tmp_path / "shards")
    assert (dataset.num_records, len(dataset.partitions), dataset.root) == (10, 3, tmp_path / "shards")
    assert [partition.manifest.num_records for partition in dataset.partitions] == [4, 3, 3]
    assert lines[-1] == "wrote 3 partitions"
    again = logged(lines, partition_dataset, photos, partitions=3, output=tmp_path / "shards")
    assert again.content_hash == dataset.content_hash
    assert lines[-1] == "nothing to do: all partitions exist already"
    assert "next:" not in capsys.readouterr().out, "that is for who types commands"


def test_no_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no pictures: give a folder of pictures"):
        partition_dataset(tmp_path / "empty", output=tmp_path / "shards")
    assert not (tmp_path / "shards").exists()
