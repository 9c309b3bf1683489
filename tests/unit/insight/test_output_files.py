"""Where the files go."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.insight.find_job import FoundJob, find_job
from bulkinfer.insight.output_files import csv_file, files_folder

from tests.made_jobs import write_job


@pytest.fixture
def found(tmp_path: Path) -> FoundJob:
    return find_job(str(write_job(tmp_path / "out", [b"a"], [[1]])))


def test_the_folder_is_made_and_removed_if_nothing_comes_of_it(found: FoundJob, tmp_path: Path) -> None:
    with pytest.raises(UsageError), files_folder(str(tmp_path / "to" / "here"), found, "score"):
        raise UsageError("no")
    assert not (tmp_path / "to").exists()
    with files_folder(str(tmp_path / "to" / "here"), found, "score") as folder:
        assert folder.is_dir()


def test_it_lies_beside_the_logs(found: FoundJob, tmp_path: Path) -> None:
    with files_folder("", FoundJob(found.output, tmp_path / "log", found.job), "score") as folder:
        assert folder == tmp_path / "log" / "score"
    with pytest.raises(UsageError, match=r"the log folder of .*out was not found: give --to FOLDER"):
        files_folder("", found, "score").__enter__()


@pytest.mark.parametrize("name", ["out", "out/more"])
def test_it_never_lies_among_the_rows(found: FoundJob, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="lies among the rows of the job"):
        files_folder(str(tmp_path / name), found, "score").__enter__()


def test_a_table_is_published_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with pytest.raises(ValueError, match="no"), csv_file(path, ("a", "b")):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    with csv_file(path, ("a", "b")) as table:
        table.writerow((None, "x, \udcff"))
    assert path.read_text() == 'a,b\n,"x, \\udcff"\n'
