"""What follows from the end of a launcher. The launchers here are small programs; tests/e2e has real ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RunError
from bulkinfer.serve.jobs import runner as module
from bulkinfer.serve.jobs.folders import ERRORS_FILE
from bulkinfer.serve.jobs.job_queue import CANCELLED, DONE, FAILED, QUEUED, Job, JobQueue
from bulkinfer.serve.jobs.runner import Runner, last_words
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError

WAITS = "import sys, time; open('waits', 'w').close(); time.sleep(600)"
IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
DIES = "import os; open('deaths', 'a').write('x'); os.kill(os.getpid(), 9)"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobQueue]:
    found = JobQueue(tmp_path / "jobs.sqlite")
    yield found
    found.close()


@pytest.fixture
def runner(queue: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """The program of a job stands in its options."""
    monkeypatch.setattr(module, "tied_words", lambda _command, *words: [sys.executable, "-c", *words])
    return Runner(queue, lambda job_id: tmp_path / job_id, lambda job: [job.options["program"]], lambda: None)


def added(queue: JobQueue, program: str) -> str:
    return queue.add("ann", {"program": program}, 100)[0].id


def job_of(queue: JobQueue, job_id: str) -> Job:
    found = queue.job_of("ann", job_id)
    assert found is not None
    return found


def run(runner: Runner, queue: JobQueue, *, until: Callable[[], bool], then: Callable[[], None] = lambda: None) -> None:
    """Run until something is so, do something, wait until all jobs have ended or the runner has, and end."""

    async def act() -> None:
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(240):
            while not until() and not running.done():
                await asyncio.sleep(0.01)
            then()
            while {"queued", "running"} & {*queue.counts()} and not running.done():
                await asyncio.sleep(0.01)
            runner.end(60)
            await running

    asyncio.run(act())


@pytest.mark.parametrize(
    ("code", "state", "reason"), [(0, DONE, ""), (3, DONE, ""), (1, FAILED, "no room"), (2, FAILED, "no room")]
)
def test_exit_codes(runner: Runner, queue: JobQueue, code: int, state: str, reason: str) -> None:
    program = f"import sys; print('a warning', file=sys.stderr); print('no room', file=sys.stderr); sys.exit({code})"
    jobs = [added(queue, program) for _ in range(2)]
    run(runner, queue, until=lambda: True)
    for job_id in jobs:
        found = job_of(queue, job_id)
        assert (found.state, found.exit_code, found.reason) == (state, code, reason)


def test_a_launcher_that_always_dies_fails_its_job(runner: Runner, queue: JobQueue, tmp_path: Path) -> None:
    first, second = added(queue, DIES), added(queue, "")
    run(runner, queue, until=lambda: True)
    found = job_of(queue, first)
    assert (found.state, found.exit_code) == (FAILED, -9)
    assert found.reason == "its launcher was ended by SIGKILL 10 times without a further row"
    assert (tmp_path / first / "deaths").read_text() == "x" * 10
    assert job_of(queue, second).state == DONE


def test_cancelling_stops_the_launcher(runner: Runner, queue: JobQueue, tmp_path: Path) -> None:
    job_id = added(queue, WAITS)

    def cancel() -> None:
        assert queue.ask_cancel("ann", job_id) is not None
        runner.cancel(job_id)

    run(runner, queue, until=(tmp_path / job_id / "waits").exists, then=cancel)
    found = job_of(queue, job_id)
    assert (found.state, found.exit_code) == (CANCELLED, -15)


def test_a_cancelled_job_of_an_earlier_service_does_not_begin(runner: Runner, queue: JobQueue, tmp_path: Path) -> None:
    job_id = added(queue, WAITS)
    queue.take()
    queue.ask_cancel("ann", job_id)
    run(runner, queue, until=lambda: True)
    assert job_of(queue, job_id).state == CANCELLED
    assert not (tmp_path / job_id).exists()


@pytest.mark.parametrize("program", [WAITS, IGNORES])
def test_a_job_is_queued_again_when_the_service_ends(runner: Runner, queue: JobQueue, tmp_path: Path, program: str) -> None:
    job_id = added(queue, program)
    run(runner, queue, until=(tmp_path / job_id / "waits").exists, then=lambda: runner.end(0.2))
    found = job_of(queue, job_id)
    assert (found.state, found.deaths) == (QUEUED, 0)


def test_a_job_that_must_not_run_any_more_fails(queue: JobQueue, tmp_path: Path) -> None:
    def words(job: Job) -> list[str]:
        raise InvalidError("data_dir /etc is not in a folder")

    job_id = added(queue, "")
    run(Runner(queue, lambda job_id: tmp_path / job_id, words, lambda: None), queue, until=lambda: True)
    found = job_of(queue, job_id)
    assert (found.state, found.exit_code, found.reason) == (FAILED, None, "data_dir /etc is not in a folder")


def test_a_lost_lock_ends_the_service(queue: JobQueue, tmp_path: Path) -> None:
    def check_lock() -> None:
        raise RunError("the lock was lost")

    job_id = added(queue, "")
    lost = Runner(queue, lambda job_id: tmp_path / job_id, lambda job: [], check_lock)
    with pytest.raises(RunError, match="the lock was lost"):
        run(lost, queue, until=lambda: False)
    assert job_of(queue, job_id).state == QUEUED


def test_last_words_are_one_printable_line(tmp_path: Path) -> None:
    (tmp_path / ERRORS_FILE).write_bytes(b"x" * 100_000 + b"\nfirst\nlast \x1b[31m\xff\n\n")
    assert last_words(tmp_path) == r"last \x1b[31m\xff"
    (tmp_path / ERRORS_FILE).write_bytes(b"")
    assert last_words(tmp_path) == "its launcher has ended without a word; launcher.log in its folder may say why"


def test_jobs_wait_while_the_disk_is_full(runner: Runner, queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, plain = [], queue.finish

    def finish(*values: Any) -> None:
        tries.append(values)
        if len(tries) < 3:
            raise RefusedError(Reason.FULL, "the disk is full")
        plain(*values)

    monkeypatch.setattr(queue, "finish", finish)
    monkeypatch.setattr(module, "_FULL_S", 0.01)
    job = added(queue, "")
    run(runner, queue, until=lambda: True)
    assert (job_of(queue, job).state, len(tries)) == (DONE, 3)
