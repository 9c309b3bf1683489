"""watch.py: a job that runs, has ended, or was killed, by its files alone; and which job a word means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands.watch import follow
from bulkinfer.errors import UsageError
from bulkinfer.files.latest_link import point_latest
from bulkinfer.files.lease import LEASE_S, Lease, take
from bulkinfer.files.output_lock import LOCK_FILE
from bulkinfer.host.process_identity import process_start_ticks
from bulkinfer.host.status import FAILED, FINISHED, KILLED, RUNNING, STARTING, STOPPED, Status, WorkerStatus
from bulkinfer.insight.watch import JobStatus, find_watched, job_status
from bulkinfer.results.status_file import STATUS_FILE, Launcher, StatusReport, write_status

STATUS = Status(done=5, total=10, images_per_s=2.5, workers={0: WorkerStatus(RUNNING, 5)})


def launcher(**changes: object) -> Launcher:
    own = Launcher(
        job="tiny-0123abcd", command="infer_launch", host="here", pid=os.getpid(), start_ticks=process_start_ticks(os.getpid()),
        started="2026-11-29T12:00:00Z", log_dir="/logs/tiny-0123abcd", output=None,
    )  # fmt: skip
    return Launcher(**{**own, **changes})  # type: ignore[typeddict-item]


def locked(folder: Path) -> Lease:
    found = take(folder / LOCK_FILE)
    assert isinstance(found, Lease)
    return found


def as_on_another_host(lock: Path, age_s: float) -> None:
    """The lock of a process that cannot be looked up here, renewed `age_s` seconds ago."""
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "host": "elsewhere"}))
    os.utime(lock, (time.time() - age_s,) * 2)


def test_a_job_that_runs(tmp_path: Path) -> None:
    lease = locked(tmp_path)
    write_status(tmp_path, launcher(), STATUS)
    seen = job_status(tmp_path)
    assert (seen.status, seen.has_ended, seen.exit_code) == (STATUS, False, 4)
    assert seen.line == "tiny-0123abcd: running: 5 of 10 pictures (50.0 %), 2.5 images/sec, 2 s left, no errors"
    assert seen.heading == ["tiny-0123abcd: running", f"infer_launch on here, pid {os.getpid()}"]
    lease.release()


def test_a_job_that_was_killed(tmp_path: Path) -> None:
    """Its lock names a process that is gone."""
    code = f"from pathlib import Path; from bulkinfer.files.lease import take; take(Path({str(tmp_path / LOCK_FILE)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    holder = json.loads((tmp_path / LOCK_FILE).read_text())
    write_status(tmp_path, launcher(pid=holder["pid"], start_ticks=holder["start_ticks"]), STATUS)
    seen = job_status(tmp_path)
    assert (seen.status.state, seen.has_ended, seen.exit_code) == (KILLED, True, 1)
    assert seen.line == "tiny-0123abcd: killed: 5 of 10 pictures (50.0 %), no errors"
    (tmp_path / LOCK_FILE).unlink()
    assert job_status(tmp_path).status == seen.status


@pytest.mark.parametrize(("age_s", "state"), [(0, RUNNING), (LEASE_S - 20, RUNNING), (LEASE_S + 1, KILLED)])
def test_a_job_on_another_host_runs_while_it_renews_its_lock(tmp_path: Path, age_s: float, state: str) -> None:
    locked(tmp_path)
    write_status(tmp_path, launcher(), STATUS)
    as_on_another_host(tmp_path / LOCK_FILE, age_s)
    assert job_status(tmp_path).status.state == state


@pytest.mark.parametrize(
    ("state", "written", "code"),
    [
        (FINISHED, 0, 0),
        (FINISHED, 3, 3),
        (FINISHED, 1, 1),
        (FINISHED, 2, 1),
        (FINISHED, None, 1),
        (STOPPED, 130, 1),
        (STOPPED, 143, 1),
        (FAILED, 2, 1),
        (FAILED, 1, 1),
    ],
)
def test_a_job_that_has_ended(tmp_path: Path, state: str, written: int | None, code: int) -> None:
    lease = locked(tmp_path)  # for the moment between the last status and the end of its process
    write_status(tmp_path, launcher(), replace(STATUS, state=state), written)
    for _ in range(2):
        seen = job_status(tmp_path)
        assert (seen.status.state, seen.has_ended, seen.exit_code) == (state, True, code)
        lease.release()


def test_a_new_launch_of_the_job_is_not_the_one_that_ended(tmp_path: Path) -> None:
    locked(tmp_path)
    write_status(tmp_path, launcher(pid=1), replace(STATUS, state=STOPPED), 130)
    seen = job_status(tmp_path)
    assert (seen.status.state, seen.has_ended, seen.exit_code) == (STARTING, False, 4)
    assert seen.status.done == 5


def test_before_the_first_status_the_lock_tells(tmp_path: Path) -> None:
    locked(tmp_path)
    for content in (None, ""):
        if content is not None:
            (tmp_path / STATUS_FILE).write_text(content)  # as a power cut leaves it
        seen = job_status(tmp_path)
        assert (seen.status.state, seen.line, seen.heading) == (STARTING, "starting: 0 pictures", [])


def test_old_news_are_told(tmp_path: Path) -> None:
    report = StatusReport(launcher(), STATUS, None, 100.2)
    assert JobStatus(STATUS, report).heading[-1] == "no news for 1 min 41 s"


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no status\.json: name a job"):
        job_status(tmp_path)
    with pytest.raises(UsageError, match="logs does not exist: give the folder of job logs"):
        find_watched("", str(tmp_path / "logs"))
    with pytest.raises(UsageError, match="nothing does not exist: name a job by its results, its log folder or its name"):
        find_watched("nothing", str(tmp_path))
    with pytest.raises(UsageError, match=r"has no status\.json: name a job by its results or log folder"):
        find_watched(str(tmp_path), str(tmp_path))


def test_which_job_a_word_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = [Path("logs/one"), Path("logs/two"), Path(".out.bulkinfer"), Path("logs/two/.results.bulkinfer")]
    for age_s, place in enumerate(places):
        place.mkdir(parents=True)
        write_status(place, launcher(job=place.name), STATUS)
        os.utime(place / STATUS_FILE, (time.time() - age_s,) * 2)
    Path("logs/latest").symlink_to("two")
    Path("out").mkdir()
    Path("logs/three").mkdir()
    assert find_watched("", "logs") == Path("logs/two"), "as the link says, whatever was written last"
    locked(Path("logs/three"))
    point_latest(Path("logs/three"))
    assert find_watched("", "logs") == Path("logs/three"), "a launch that begins has a lock, and no status yet"
    point_latest(Path("logs/two"))
    assert find_watched("two", "logs") == Path("logs/two")
    assert find_watched("logs/latest", "logs") == Path("logs/two")
    assert find_watched("out", "logs") == Path(".out.bulkinfer")
    assert find_watched("logs/two/results", "logs") == Path("logs/two/.results.bulkinfer")
    assert find_watched("logs/one/results", "logs") == Path("logs/one")


def test_it_is_followed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal: a line at once, and no more of them for 30 s."""
    report = StatusReport(launcher(), STATUS, None, 0.0)
    states, waits = iter([RUNNING, RUNNING, RUNNING, FINISHED]), list[float]()
    seen = follow(lambda: JobStatus(replace(STATUS, state=next(states)), report), wait=waits.append)
    assert (seen.has_ended, waits) == (True, [1.0] * 3)
    assert capsys.readouterr().out.splitlines() == [JobStatus(STATUS, report).line]
