"""The job that a user means: an output, a log folder, a name, or the newest."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.json_file import write_json
from bulkinfer.insight.find_job import FoundJob, find_job, newest_with
from bulkinfer.insight.jobs import list_jobs
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.reporting.summary import point_latest
from bulkinfer.results.job_file import job_path
from bulkinfer.results.log_folder import job_name

from tests.launches import as_an_earlier_version, config_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs in logs/: the first with rows in out/, the newest with rows in its log folder."""
    folder = tmp_path_factory.mktemp("home")
    assert launch(config_of(folder, photos=3, engine="inline")).exit_code == 0
    assert launch(config_of(folder, photos=3, engine="inline", output="", top_k=2)).exit_code == 0
    return folder


@pytest.fixture
def in_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


def log_dirs() -> dict[bool, Path]:
    """The log folders: whether the rows lie in them -> the folder."""
    return {(path / "results").is_dir(): path for path in Path("logs").iterdir() if not path.is_symlink()}


def same(found: FoundJob, output: Path, log_dir: Path) -> bool:
    return (
        found.log_dir is not None
        and found.output.samefile(output)
        and found.log_dir.samefile(log_dir)
        and len(found.job.parts) == 1
    )


@pytest.mark.usefixtures("in_home")
def test_by_output_and_by_log_folder() -> None:
    log_dir = log_dirs()[False]
    for word in ("out", "out/", str(Path("out").resolve()), str(log_dir), f"{log_dir}/", f"{log_dir}/results", log_dir.name):
        assert same(find_job(word), Path("out"), log_dir), word


@pytest.mark.usefixtures("in_home")
def test_the_default_output() -> None:
    log_dir = log_dirs()[True]
    for word in (str(log_dir), str(log_dir / "results"), log_dir.name, "logs/latest", "logs/latest/results", "latest"):
        assert same(find_job(word), log_dir / "results", log_dir), word


@pytest.mark.usefixtures("in_home")
@pytest.mark.parametrize("word", [None, ""])
def test_the_newest_is_named_by_its_own_folder(word: str | None) -> None:
    found = find_job(word)
    assert (found.output, found.log_dir) == (log_dirs()[True] / "results", log_dirs()[True])


@pytest.mark.usefixtures("in_home")
def test_an_output_whose_logs_are_gone(home: Path) -> None:
    log_dir = log_dirs()[False]
    log_dir.rename(home / "elsewhere")
    try:
        assert find_job("out").log_dir is None
    finally:
        (home / "elsewhere").rename(log_dir)


@pytest.mark.usefixtures("in_home")
@pytest.mark.parametrize("word", ["nowhere", "logs/nowhere", "photos/000-black.png", "photos", "a\0b"])
def test_what_is_no_job_is_one_sentence(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_job(word)
    assert "\n" not in str(refused.value)


def test_without_any_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no job yet in logs: bulkinfer run PHOTOS \(PHOTOS: a folder of pictures\)$"):
        find_job(None)


def test_the_newest_run_wrote_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("logs") / "tiny-0123abcd-20260101T000000Z"
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {"output": None})
    point_latest(folder)
    with pytest.raises(UsageError, match=f"{folder}, the newest run, wrote no rows"):
        find_job(None)


def test_the_newest_that_saved_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for log_path, more in (("logs", ""), ("my logs", " --log_path 'my logs'")):
        command = f"bulkinfer run PHOTOS --save topk embedding{more} (PHOTOS: a folder of pictures)"
        message = re.escape(f"no job in {log_path} saved embedding or logits: run {command}")
        with pytest.raises(UsageError, match=f"^{message}$"):
            newest_with(("embedding", "logits"), log_path)
    for name, save in (("first", ("logits",)), ("second", ("topk", "embedding")), ("third", ("topk",))):
        made = config_of(tmp_path, photos=3, engine="inline", output=name, save=save)
        assert launch(replace(made, log_path="logs")).exit_code == 0
    assert find_job(None).output.name == "third"
    assert newest_with(("embedding", "logits"), "logs").output.name == "second"
    assert newest_with(("logits",), "logs").output.name == "first"
    job_path(Path("second")).write_text("{")
    assert newest_with(("embedding", "logits"), "logs").output.name == "first", "a damaged job is passed over"


def test_logs_of_another_output_are_not_those_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs that differ only in --output have a log folder each, and one name but for the time."""
    monkeypatch.chdir(tmp_path)
    folders = {}
    for output in ("one", "two"):
        result = launch(config_of(tmp_path, photos=3, engine="inline", output=output))
        folders[output] = Path("logs") / result.log_dir.name
    for output, log_dir in folders.items():
        for word in (output, log_dir.name):
            assert same(find_job(word), Path(output), log_dir), word
    assert same(find_job(""), Path("two"), folders["two"])
    short = job_name("tiny", find_job("one").job.fingerprint)
    with pytest.raises(UsageError, match=f"{short} begins the names of {short}-.*, {short}-.* in logs: give a whole name"):
        find_job(short)


def test_logs_of_an_earlier_version_that_two_jobs_share_are_of_the_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch(config_of(tmp_path, photos=3, engine="inline", output="one")).exit_code == 0
    shutil.rmtree("logs")
    log_dir = as_an_earlier_version(launch(config_of(tmp_path, photos=3, engine="inline", output="two")).log_dir)
    log_dir = Path("logs") / log_dir.name
    assert find_job("one").log_dir is None
    for word in ("two", log_dir.name):
        assert same(find_job(word), Path("two"), log_dir), word


def test_a_job_by_the_name_without_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log_dir = launch(config_of(tmp_path, photos=3, engine="inline")).log_dir
    found = find_job("out")
    assert found.name == log_dir.name
    assert find_job(job_name("tiny", found.job.fingerprint)).output.samefile("out")


def test_a_job_whose_output_another_job_overwrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = launch(config_of(tmp_path, photos=3, engine="inline")).log_dir
    second = launch(config_of(tmp_path, photos=3, engine="inline", limit=2, overwrite=True)).log_dir
    for is_old in (False, True):
        folder = as_an_earlier_version(first) if is_old else first
        with pytest.raises(UsageError, match=r"another job has overwritten: .*: bulkinfer show /.*out"):
            find_job(folder.name)
        assert {job.log_dir.name: job.state for job in list_jobs("logs")} == {
            folder.name: "overwritten",
            second.name: "finished",
        }
    assert same(find_job("out"), Path("out"), second)


def test_a_log_folder_that_is_a_link_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = launch(config_of(tmp_path, photos=3, engine="inline")).output
    assert output is not None
    (log_dir,) = (path for path in Path("logs").iterdir() if not path.is_symlink())
    (tmp_path / "disk").mkdir()
    log_dir.rename(tmp_path / "disk" / "far")
    log_dir.symlink_to(tmp_path / "disk" / "far")
    for word in ("", "out", log_dir.name):
        found = find_job(word)
        assert found.log_dir == log_dir, word
