"""Where the files go."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.insight.find_job import FoundJob, find_job
from bulkinfer.insight.output_files import csv_file, files_folder, require_file_place, written_file

from tests.made_jobs import write_job


@pytest.fixture
def found(tmp_path: Path) -> FoundJob:
    return find_job(str(write_job(tmp_path / "out", [b"a"], [[1]])))


def opened(to: str, found: FoundJob, *, overwrite: bool = False) -> AbstractContextManager[Path]:
    return files_folder(to, found, "score", ("a.json", "b.csv"), overwrite=overwrite)


def test_the_folder_is_made_and_removed_if_nothing_comes_of_it(found: FoundJob, tmp_path: Path) -> None:
    with pytest.raises(UsageError), opened(str(tmp_path / "to" / "here"), found):
        raise UsageError("no")
    assert not (tmp_path / "to").exists()
    with opened(str(tmp_path / "to" / "here"), found) as folder:
        assert folder.is_dir()


def test_it_lies_beside_the_logs(found: FoundJob, tmp_path: Path) -> None:
    with opened("", FoundJob(found.output, tmp_path / "log", found.job)) as folder:
        assert folder == tmp_path / "log" / "score"
    with pytest.raises(UsageError, match=r"the log folder of .*out was not found: give --to FOLDER"):
        opened("", found).__enter__()


def test_files_of_the_user_are_replaced_only_if_that_is_asked(found: FoundJob, tmp_path: Path) -> None:
    place = tmp_path / "log" / "score"
    place.mkdir(parents=True)
    (place / "b.csv").write_text("")
    (place / "mine.txt").write_text("")
    logged = FoundJob(found.output, tmp_path / "log", found.job)
    for to in ("", str(place)):
        with opened(to, logged):
            pass
    with pytest.raises(UsageError, match=r"b\.csv exists: give another place with --to, or --overwrite to replace it"):
        opened(str(place), found).__enter__()
    with opened(str(place), found, overwrite=True) as folder:
        assert folder == place
    (place / "b.csv").unlink()
    with opened(str(place), found):
        pass


@pytest.mark.parametrize("name", ["out", "out/more"])
def test_it_never_lies_among_the_rows(found: FoundJob, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="lies among the rows of the job"):
        opened(str(tmp_path / name), found).__enter__()


def test_it_never_lies_among_the_rows_of_another_job(found: FoundJob, tmp_path: Path) -> None:
    write_job(tmp_path / "other", [b"a"], [[1]])
    message = "--to .* holds the results of a job: give a folder outside of it"
    with pytest.raises(UsageError, match=message):
        require_file_place(str(tmp_path / "other" / "x.csv"), found.output, overwrite=False)
    with pytest.raises(UsageError, match=message):
        opened(str(tmp_path / "other"), found).__enter__()


def test_the_place_of_a_file(found: FoundJob, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "page.html"
    assert require_file_place(str(path), found.output, overwrite=False) == path
    with pytest.raises(TypeError), written_file(path) as file:
        file.write("half of it")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
    with written_file(path) as file:
        file.write(b"one")
    with pytest.raises(UsageError, match=r"page\.html exists: give another place with --to, or --overwrite to replace it"):
        require_file_place(str(path), found.output, overwrite=False)
    assert require_file_place(str(path), None, overwrite=True) == path
    with pytest.raises(UsageError, match=r"--to .*folder is a folder: give the name of a file in it"):
        require_file_place(str(path.parent), None, overwrite=True)
    with pytest.raises(UsageError, match="lies among the rows of the job"):
        require_file_place(str(found.output / "page.html"), found.output, overwrite=False)


def test_a_table_is_published_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with pytest.raises(ValueError, match="no"), csv_file(path, ("a", "b")):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    with csv_file(path, ("a", "b")) as table:
        table.writerow((None, "x, \udcff"))
    assert path.read_text() == 'a,b\n,"x, \\udcff"\n'


def test_a_stream_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for to in ("/dev/stdout", "/dev/null", "/dev/fd/1", "/proc/self/fd/1", str(tmp_path / "pipe")):
        with pytest.raises(UsageError, match="is no file: give the name of a file, or - for stdout"):
            require_file_place(to, None, overwrite=True)
