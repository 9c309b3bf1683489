"""job_place.py: the folder that a word names, and what is said where there is no job yet or the word is misspelt."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.latest_link import point_latest
from bulkinfer.results.job_place import newest, place_of

NAME = "tiny-0123abcd-20260101T000000Z"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("word", ["latest", "logs/latest", "logs/latest/results"])
def test_where_no_job_has_run_yet_the_first_command_is_named(word: str) -> None:
    for asked in (lambda: place_of(word, "logs"), lambda: newest("logs")):
        with pytest.raises(UsageError, match=r"^no job yet in logs: bulkinfer run PHOTOS \(PHOTOS: a folder of pictures\)$"):
            asked()
    Path("holiday").mkdir()
    Path("holiday/a.jpg").touch()
    with pytest.raises(UsageError, match=r"^no job yet in logs: bulkinfer run holiday$"):
        place_of(word, "logs")


def test_without_the_link_the_jobs_are_listed() -> None:
    (Path("logs") / NAME).mkdir(parents=True)
    with pytest.raises(UsageError, match=r"^logs has no link latest to the newest job: name one that bulkinfer jobs lists$"):
        newest("logs")
    Path("logs").rename("my logs")
    with pytest.raises(UsageError, match=r"name one that bulkinfer jobs 'my logs' lists$"):
        newest("my logs")
    point_latest(Path("my logs") / NAME)
    assert newest("my logs") == Path("my logs") / NAME == place_of("latest", "my logs")


def test_a_misspelt_job_is_asked_for() -> None:
    (Path("logs") / NAME).mkdir(parents=True)
    Path("results-of-may").mkdir()
    for word, meant in (
        ("result-of-may", "results-of-may"),
        ("tiny-0123abce-20260101T000000Z", NAME),
        ("logs/tiny-0123abce-20260101T000000Z", f"logs/{NAME}"),
    ):
        with pytest.raises(UsageError, match=rf"^{word} does not exist: did you mean {meant}\?$"):
            place_of(word, "logs")
    with pytest.raises(UsageError, match=r"^zebra does not exist: name a job by its results, its log folder or its name$"):
        place_of("zebra", "logs")
    with pytest.raises(UsageError, match=r"^log does not exist: did you mean logs\?$"):
        newest("log")


def test_a_name_and_its_beginning() -> None:
    for name in (NAME, NAME.replace("2026", "2027")):
        (Path("logs") / name).mkdir(parents=True)
    assert place_of(NAME, "logs") == Path("logs") / NAME
    with pytest.raises(UsageError, match=r"tiny-0123abcd begins the names of .*: give a whole name"):
        place_of("tiny-0123abcd", "logs")
