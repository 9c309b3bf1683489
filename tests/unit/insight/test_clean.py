"""clean.py: removes what bulkinfer wrote, and nothing else, and never a running job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bulkinfer.errors import LockedError, UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.json_file import write_json
from bulkinfer.files.output_lock import output_lock, results_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.insight.clean import Removal, plan_removals, remove
from bulkinfer.insight.find_job import find_job
from bulkinfer.insight.jobs import list_jobs
from bulkinfer.launch.launcher import launch

from tests import memory_store
from tests.launches import config_of
from tests.made_jobs import write_job
from tests.shown_job import finished_job


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job with rows in out/, and one with rows in its log folder."""
    monkeypatch.chdir(tmp_path)
    finished_job(tmp_path)
    finished_job(tmp_path, output="", top_k=2)
    return tmp_path


def log_dir(home: Path, *, is_default: bool) -> Path:
    return next(job.log_dir for job in list_jobs("logs") if (job.output == job.log_dir / "results") == is_default)


def planned(*words: object, what: str = "both") -> list[Removal]:
    return plan_removals(tuple(map(str, words)), what, "logs")


def left(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} - {"photos", "models"}


def test_both(home: Path) -> None:
    folder = log_dir(home, is_default=False)
    (removal,) = planned("out")
    sizes = [path.stat().st_size for path in removal.files()]
    assert str(removal).startswith(f"output out and log folder {folder}: {len(sizes)} files, ")
    assert removal.size_bytes == sum(sizes)
    assert remove(removal) == []
    assert left(home) == {"logs"}
    assert not folder.exists()
    assert (home / "logs" / "latest").exists(), "it leads to the other job"


def test_one_that_holds_its_output(home: Path) -> None:
    folder = log_dir(home, is_default=True)
    assert [remove(removal) for removal in planned(folder)] == [[]]
    assert not folder.exists()
    assert not os.path.lexists(home / "logs" / "latest")
    assert left(home) == {"logs", "out", ".out.bulkinfer"}


def test_the_output_alone_and_the_logs_alone(home: Path) -> None:
    folder = log_dir(home, is_default=True)
    before = sorted(path.name for path in folder.iterdir())
    (removal,) = planned(folder, what="logs")
    assert remove(removal) == []
    assert {path.name for path in folder.iterdir()} == {"results", ".results.bulkinfer"}
    (removal,) = planned(folder / "results", what="output")
    remove(removal)
    assert not folder.joinpath("results").exists()
    assert "run.json" in before


def test_logs_of_another_output_stay(home: Path) -> None:
    finished_job(home, output="other")
    folder = next(job.log_dir for job in list_jobs("logs") if job.output is not None and job.output.name == "other")
    (removal,) = planned("out")
    assert removal.log_dir not in (None, folder)
    remove(removal)
    assert (folder / "run.json").is_file()
    assert planned("other")[0].log_dir == folder


def test_files_of_others_stay_and_are_named(home: Path) -> None:
    folder = log_dir(home, is_default=False)
    for path in (home / "out" / "notes.txt", folder / "rows.csv"):
        path.write_text("mine")
    (removal,) = planned("out")
    assert [path.name for path in remove(removal)] == ["notes.txt", "rows.csv"]
    assert (home / "out" / "notes.txt").read_text() == (folder / "rows.csv").read_text() == "mine"
    assert list(folder.iterdir()) == [folder / "rows.csv"]


def test_files_of_users_in_the_folders_of_other_commands_stay(home: Path) -> None:
    folder = log_dir(home, is_default=False)
    own = [
        folder / "score" / "score.json",
        folder / "compare" / "changed.csv",
        folder / "retry" / "worker-0.log",
        folder / "node-2.permit.json",
    ]
    own += [folder / "manifest.parquet", folder / "manifest-00001.parquet"]
    mine = [folder / "score" / "notes.txt", folder / "score" / "more" / "score.json", folder / "retry" / "worker-mine.log"]
    mine += [folder / "report" / "page.html", folder / "manifest-of-mine.parquet"]
    for path in (*own, *mine):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (removal,) = planned("out")
    assert set(own) <= set(removal.files())
    assert remove(removal) == [mine[4], folder / "report", mine[2], folder / "score" / "more", mine[0]]
    assert {path for path in folder.rglob("*") if path.is_file()} == set(mine)
    assert not (folder / "compare").exists()


def test_what_a_killed_command_left_is_removed(home: Path) -> None:
    folder = log_dir(home, is_default=False)
    code = "import sys; from pathlib import Path; from bulkinfer.files.atomic import *; a, b = map(Path, sys.argv[1:]); "
    code += "temporary_path(a / 'score.json').touch(); b.mkdir(); write_owner_file(b)"
    for name in ("score", "compare"):
        (folder / name).mkdir()
    subprocess.run([sys.executable, "-c", code, folder / "score", folder / "compare" / ".compare-x"], check=True)
    assert remove(planned("out")[0]) == []
    assert not folder.exists()


def test_a_job_that_runs_stays(home: Path) -> None:
    with results_lock(home / "out"), pytest.raises(LockedError, match="nothing is removed"):
        planned("out")
    (removal,) = planned("out")
    files = list(removal.files())
    assert removal.log_dir is not None
    with output_lock(removal.log_dir, flag=""), pytest.raises(LockedError, match="is in use"):
        remove(removal)
    assert list(removal.files()) == files


def test_a_run_without_pictures_and_a_job_whose_output_is_gone(home: Path) -> None:
    folder = log_dir(home, is_default=False)
    launch(config_of(home, synthetic=True, engine="inline", iterations=1, batches_per_step=1))
    synthetic = next(job.log_dir for job in list_jobs("logs") if job.state == "no rows")
    remove(planned("out", what="output")[0])
    for place in (synthetic, folder.name):
        (removal,) = planned(place)
        assert removal.output is None
        assert remove(removal) == []
    assert not synthetic.exists()
    assert not folder.exists()


def test_the_logs_alone_after_the_output(home: Path) -> None:
    folder = log_dir(home, is_default=False)
    remove(planned("out", what="output")[0])
    (removal,) = planned("out", what="logs")
    assert (removal.output, removal.log_dir) == (None, Path("logs") / folder.name)
    remove(removal)
    assert not folder.exists()


def test_a_job_whose_output_another_job_overwrote(home: Path) -> None:
    first = log_dir(home, is_default=False)
    launch(config_of(home, engine="inline", limit=2, overwrite=True))
    (removal,) = planned(first)
    assert (removal.output, removal.log_dir) == (None, first)
    remove(removal)
    assert not first.exists()
    assert find_job("out").job.num_records == 2


def test_a_job_that_has_nothing_of_what_is_asked(home: Path) -> None:
    (logs,) = planned("out", what="logs")
    (output,) = planned("out", what="output")
    remove(output)
    message = "the job of out has no results: give --what logs to remove its log folder"
    with pytest.raises(UsageError, match=f"^{message}$"):
        planned("out", what="output")
    assert planned("out", what="logs") == planned("out") == [logs]


def test_a_job_without_a_log_folder(home: Path) -> None:
    (logs,) = planned("out", what="logs")
    remove(logs)
    message = "the job of out has no log folder: give --what output to remove its results"
    with pytest.raises(UsageError, match=f"^{message}$"):
        planned("out", what="logs")
    (output,) = planned("out", what="output")
    assert [output] == planned("out")
    remove(output)
    assert "out" not in left(home)


def test_by_the_link_to_the_newest(home: Path) -> None:
    folder = log_dir(home, is_default=True)
    remove(planned("logs/latest")[0])
    assert not folder.exists()
    assert not os.path.lexists("logs/latest")


def test_what_a_killed_launcher_left(home: Path) -> None:
    begun, empty = Path("logs/tiny-0123abcd-20261129T120000Z"), Path("logs/tiny-0123abcd-20261129T120001Z")
    for folder in (begun, empty):
        folder.mkdir()
    write_json(begun / "launch.json", {"fingerprint": "0123abcd" * 8, "output": str(home / "never")})
    assert {job.log_dir.name: job.state for job in list_jobs("logs")}[begun.name] == "gone"
    for folder in (begun, empty):
        assert remove(planned(folder)[0]) == []
        assert not folder.exists()


def test_a_job_that_is_named_twice_is_one(home: Path) -> None:
    assert len(planned("out", home / "out", log_dir(home, is_default=False))) == 1


def test_what_is_no_job(home: Path) -> None:
    for word in ("photos", "nowhere", "models/tiny"):
        with pytest.raises(UsageError):
            planned(word)


@pytest.mark.parametrize("address", ["s3://bucket", "s3://bucket/results", "s3://results"])
def test_results_in_a_bucket_and_at_its_root(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = memory_store.put_in_place(monkeypatch, tmp_path / "cache")
    output = AddressPath(address)
    prefix = "".join(f"{name}/" for name in output.parts[2:])
    made = write_job(tmp_path / "made", [b"red/1"], [1])
    store.objects = {f"{prefix}{path.name}": path.read_bytes() for path in made.iterdir()}
    store.objects |= {f"{prefix}.bulkinfer/{path.name}": path.read_bytes() for path in own_folder(made).iterdir()}
    store.objects["mine"] = b"mine"
    (removal,) = planned(address, what="output")
    assert remove(removal) == ([] if prefix else [output / "mine"])
    assert store.objects == {"mine": b"mine"}
