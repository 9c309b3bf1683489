"""bulkinfer show, rows, jobs and clean, and the end of a launch, as a user types them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import command, run, run_here
from tests.forms import long
from tests.launches import config_of
from tests.shown_job import BROKEN, GREY, NUM_ERRORS, NUM_OK, ODD, finished_job


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job with its rows in out/, the newest one of logs/."""
    folder = tmp_path_factory.mktemp("looked at")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        finished_job(folder)
        yield folder


def test_show(home: Path) -> None:
    done = run("bulkinfer", "show", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines[2:])) <= 80
    total = NUM_OK + NUM_ERRORS
    assert f": {total} of {total} rows ({NUM_OK} ok, {NUM_ERRORS} errors), tiny" in done.stdout
    assert 'odd "name", with\\nline.png  red' in done.stdout


def test_show_chosen_rows(home: Path) -> None:
    def keys(*words: str) -> list[str]:
        done = run_here("bulkinfer", "show", "out", *words, cwd=home)
        assert (done.returncode, done.stderr) == (0, "")
        return [line.split("  ")[0] for line in done.stdout.splitlines()[2:]]

    assert keys("--least_sure", "1") == [GREY]
    assert keys("--class", "lime") == ["002-lime.png"]
    assert keys("--key", "00[45]*") == ["004-yellow.png", "005-cyan.png"]
    assert keys("--errors")[0] == BROKEN
    assert keys("--top", "2", "--key", "*.png")[:2] == ["000-black.png", "001-red.png"]


def test_show_says_what_it_leaves_out(home: Path) -> None:
    def last(*words: str) -> str:
        return str(run_here("bulkinfer", "show", "out", *words, cwd=home).stdout.splitlines()[-1])

    total = NUM_OK + NUM_ERRORS
    assert last("--top", "3") == f"3 of {total} rows; --top {total} shows all"
    assert last("--top", "3", "--key", "0*") == "more rows fit; --top 6 shows more of them"
    assert last("--top", "1", "--errors") == "more rows fit; --top 2 shows more of them"
    for words in (("--top", str(total)), ("--top", "2", "--errors"), ("--class", "lime", "--top", "1"), ("--least_sure", "2")):
        assert "--top" not in last(*words), words


def test_show_of_a_class_that_the_network_has_not(home: Path) -> None:
    done = run_here("bulkinfer", "show", "out", "--class", "limee", cwd=home)
    assert (done.returncode, done.stderr) == (
        2,
        "bulkinfer show: --class limee: tiny has no such class; did you mean 'lime'?\n",
    )
    done = run_here("bulkinfer", "show", "out", "--class", "99", cwd=home)
    assert done.stderr == "bulkinfer show: --class 99: tiny has no such class; give a name, or a number from 0 to 7\n"
    done = run_here("bulkinfer", "show", "out", "--class", "lime", "--key", "*.jpg", cwd=home)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no row fits")
    (home / "models").rename(home / "gone")  # then only the rows know names
    try:
        done = run_here("bulkinfer", "show", "out", "--class", "limee", cwd=home)
        assert (done.returncode, done.stderr) == (
            2,
            "bulkinfer show: --class limee: no row has such a class; did you mean 'lime'?\n",
        )
        assert "002-lime.png" in run_here("bulkinfer", "show", "out", "--class", "lime", cwd=home).stdout
    finally:
        (home / "gone").rename(home / "models")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nowhere"], "nowhere does not exist: name a job by its results, its log folder or its name"),
        (["show", "--least_sure", "3", "--most_sure", "3"], "give one of them"),
        (["show", "--errors", "--class", "red"], "error rows have no class"),
        (["rows", "out", "--to", "out/rows.csv"], "lies among the rows of the job"),
        (["rows", "out"], "--to FILE is missing"),
        (["rows", "out", "--to", "x.tsv"], "--to x.tsv: no format has the ending .tsv"),
        (["rows", "out", "--format", "npy", "--to", "x.csv"], "--to x.csv: .csv is not the ending of --format npy"),
        (["rows", "out", "--format", "xml", "--to", "x"], "value should be one of"),
        (["jobs", "nowhere"], "nowhere does not exist"),
        (["clean"], "no job is given: name one that bulkinfer jobs lists"),
        (["clean", "out"], "give --yes"),
    ],
)
def test_what_is_wrong_is_one_sentence(home: Path, words: list[str], message: str) -> None:
    done = run_here("bulkinfer", *words, cwd=home)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_text_to_stdout_is_nothing_but_that(home: Path) -> None:
    done = run_here("bulkinfer", "rows", "logs/latest", "--to", "-", cwd=home)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, NUM_OK + NUM_ERRORS + 2), "one key has a line break"
    answers = ",".join(f"class_{rank},label_{rank},score_{rank}" for rank in range(1, 6))
    assert done.stdout.splitlines()[0] == f"key,status,{answers},stage,error"
    assert done.stderr == f"stdout: {NUM_OK + NUM_ERRORS} rows of {home / 'out'}\n"
    done = run_here("bulkinfer", "rows", "out", "--to", "-", "--format", "fiftyone", cwd=home)
    assert done.stderr.startswith("bulkinfer rows: warning: left out 1 row, the first of which is latin-\\xe9.png: ")
    done = run_here("bulkinfer", "report", "out", "--to", "-", cwd=home)
    assert (done.returncode, done.stdout.lstrip()[:9].lower()) == (0, "<!doctype")
    assert not list(home.glob("-*"))


@pytest.mark.parametrize(
    ("words", "begins"), [(("rows", "out"), "key,status,"), (("report", "out"), "<!doctype html>")], ids=str
)
def test_a_file_may_be_called_as_stdout_is(home: Path, words: tuple[str, ...], begins: str) -> None:
    done = run_here("bulkinfer", *words, "--to", "./-", cwd=home)
    try:
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        assert (home / "-").read_text().lower().startswith(begins)
    finally:
        (home / "-").unlink()


@pytest.mark.parametrize("words", [("rows", "--format", "jsonl"), ("rows", "--format", "coco"), ("report",)], ids=str)
def test_a_reader_that_has_enough_is_no_failure(home: Path, words: tuple[str, ...]) -> None:
    """As `| head -1`, which ends when it has its line."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("bulkinfer", *words, "--to", "-"), cwd=home, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_numbers_beyond_64_bits_mean_all(home: Path) -> None:
    done = run("bulkinfer", "show", "--top", 10**20, cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) >= NUM_OK + NUM_ERRORS
    words = ("--format", "parquet", "--to", "large", "--rows_per_file", 10**20)
    assert run("bulkinfer", "rows", *words, cwd=home).returncode == 0
    assert len(list((home / "large").iterdir())) == 1


def test_rows_and_jobs(home: Path) -> None:
    done = run("bulkinfer", "rows", "out", "--to", "rows.jsonl", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"rows.jsonl: {NUM_OK + NUM_ERRORS} rows of out\n"
    assert ODD in {json.loads(line)["key"] for line in (home / "rows.jsonl").read_text().splitlines()}
    done = run_here("bulkinfer", "jobs", cwd=home)
    total = NUM_OK + NUM_ERRORS
    assert re.search(
        rf"tiny-\w{{8}}-\w{{16}} +finished +{total} of {total} +{NUM_ERRORS} +\d\d-\d\d \d\d:\d\d +\d", done.stdout
    )


def test_every_command_takes_the_name_of_a_job_or_the_newest(home: Path) -> None:
    name = run_here("bulkinfer", "jobs", cwd=home).stdout.splitlines()[1].split()[0]
    for word in ([name], [], ["latest"], [f"logs/{name}"]):
        for words in (["verify"], ["retry", "--dry_run"]):
            done = run_here("bulkinfer", *words, *word, cwd=home)
            assert done.returncode == 0, (words, word, done.stderr)
            assert f"{home / 'out'}" in done.stdout


def test_the_lines_at_the_end_of_a_launch_work_when_typed(tmp_path: Path) -> None:
    config = config_of(tmp_path, photos=4)
    (Path(config.data_dir) / "broken.jpg").write_bytes(b"no picture")
    words = ["--data_dir", "photos", "--model_name", "tiny", "--batch_size", 4, "--device", "cpu", "--precision", "fp32"]
    launched = run("infer_launch", *words, "--output", "my rows", cwd=tmp_path)
    assert launched.returncode == 3
    lines = launched.stdout.splitlines()
    assert lines[-1] == "next: bulkinfer show 'my rows'"
    assert "records: 5 = 4 ok + 1 errors (1 at decode)" in lines
    assert "results: my rows" in lines
    assert any(line.startswith("  decode: broken.jpg: not a picture") for line in lines)
    (retry,) = [line for line in lines if line.startswith("  to run the error rows again: ")]
    for line, code in ((lines[-1], 0), (retry, 3)):
        typed = shlex.split(line.partition(": ")[2])
        done = run(*typed, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (code, ""), done
    assert "next: bulkinfer show 'my rows'" in done.stdout, "a retry ends in the same way"


@pytest.mark.parametrize("answer", ["y\n", "n\n", "\n"])
def test_clean_asks_on_a_terminal(tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished_job(tmp_path)
    leader, follower = os.openpty()
    os.write(leader, answer.encode())
    with os.fdopen(leader), os.fdopen(follower) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        done = run_here("bulkinfer", "clean", "out", cwd=tmp_path)
    assert "remove them? [y/N]" in done.stdout
    assert done.returncode == (0 if answer == "y\n" else 1)
    assert (tmp_path / "out").exists() == (answer != "y\n")


@long
def test_clean_from_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished_job(tmp_path)
    done = run("bulkinfer", "clean", "out", "--yes", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "models", "photos"}
    assert list((tmp_path / "logs").iterdir()) == []
