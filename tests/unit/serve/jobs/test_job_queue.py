"""The queue: what may follow what, and what is there after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.serve.jobs.job_queue import CANCELLED, DONE, FAILED, QUEUED, RUNNING, JobQueue
from bulkinfer.serve.refusals import Reason, RefusedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.sqlite"


@pytest.fixture
def queue(path: Path) -> Iterator[JobQueue]:
    found = JobQueue(path)
    yield found
    found.close()


def added(queue: JobQueue, user: str = "ann", **options: object) -> str:
    return queue.add(user, options, 100)[0].id


def states(queue: JobQueue, user: str = "ann") -> list[str]:
    """From the oldest to the newest."""
    return [job.state for job in reversed(queue.jobs_of(user, 100))]


def test_jobs_are_taken_in_order_one_at_a_time(queue: JobQueue) -> None:
    first, second = added(queue, data_dir="/a"), added(queue, "bob")
    taken = queue.take()
    assert taken is not None
    assert (taken.id, taken.state, taken.options, taken.started) == (first, RUNNING, {"data_dir": "/a"}, taken.submitted)
    again = queue.take()
    assert again == taken, "it has not ended: it is continued, and no other begins"
    queue.finish(first, DONE, 3)
    assert (states(queue), states(queue, "bob")) == ([DONE], [QUEUED])
    assert [job.exit_code for job in queue.jobs_of("ann", 1)] == [3]
    taken = queue.take()
    assert taken is not None
    assert taken.id == second
    queue.finish(second, FAILED, 1, "no room")
    assert [job.reason for job in queue.jobs_of("bob", 1)] == ["no room"]
    assert queue.take() is None


def test_what_was_put_back_comes_first(queue: JobQueue) -> None:
    first, _ = added(queue), added(queue)
    queue.take()
    queue.put_back(first)
    assert states(queue) == [QUEUED, QUEUED]
    taken = queue.take()
    assert taken is not None
    assert taken.id == first


def test_a_restart_changes_nothing(path: Path) -> None:
    queue = JobQueue(path)
    first, second = added(queue), added(queue)
    queue.take()
    queue.ask_cancel("ann", first)
    before = queue.jobs_of("ann", 10)
    queue.close()
    queue = JobQueue(path)
    assert queue.jobs_of("ann", 10) == before
    taken = queue.take()
    assert taken is not None
    assert (taken.id, taken.is_cancel_asked) == (first, True)
    assert queue.counts() == {QUEUED: 1, RUNNING: 1}
    assert second in {job.id for job in before}
    queue.close()


def test_a_change_that_was_not_committed_is_not_there(queue: JobQueue) -> None:
    first = added(queue)
    with pytest.raises(AssertionError, match="is not running"):
        queue.finish(first, DONE, 0)
    assert states(queue) == [QUEUED]
    with pytest.raises(RunError, match="cannot be used"):
        fail_in_the_middle(queue)
    assert states(queue) == [QUEUED]


def fail_in_the_middle(queue: JobQueue) -> None:
    with queue._transaction() as cursor:
        cursor.execute("UPDATE jobs SET state = 'running'")
        cursor.execute("UPDATE nothing")


def test_the_table_itself_keeps_two_from_running(path: Path, queue: JobQueue) -> None:
    added(queue)
    added(queue)
    with sqlite3.connect(path) as other, pytest.raises(sqlite3.IntegrityError):
        other.execute("UPDATE jobs SET state = 'running'")
    other.close()
    assert (sqlite_setting(queue, "journal_mode"), sqlite_setting(queue, "synchronous")) == ("wal", 2)


def sqlite_setting(queue: JobQueue, name: str) -> object:
    return queue._connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_cancelling(queue: JobQueue) -> None:
    first, second = added(queue), added(queue)
    queue.take()
    cancelled = queue.ask_cancel("ann", second)
    assert cancelled is not None
    assert cancelled.state == CANCELLED
    running = queue.ask_cancel("ann", first)
    assert running is not None
    assert (running.state, running.is_cancel_asked) == (RUNNING, True)
    queue.finish(first, DONE, 0)
    done = queue.ask_cancel("ann", first)
    assert done is not None
    assert done.state == DONE, "it had ended before"
    assert queue.ask_cancel("bob", first) is None


def test_a_user_sees_no_others(queue: JobQueue) -> None:
    first = added(queue)
    assert queue.job_of("bob", first) is None
    assert queue.jobs_of("bob", 10) == []
    assert [job.id for job in queue.jobs_of("ann", 10)] == [first]


def test_no_user_fills_the_queue(queue: JobQueue) -> None:
    first = queue.add("ann", {}, 2)[0].id
    queue.add("ann", {}, 2)
    with pytest.raises(RefusedError, match="2 jobs of yours have not ended") as refusal:
        queue.add("ann", {}, 2)
    assert refusal.value.reason is Reason.BUSY
    queue.add("bob", {}, 2)
    queue.ask_cancel("ann", first)
    queue.add("ann", {}, 2)


def test_a_request_that_is_sent_twice_makes_one_job(queue: JobQueue) -> None:
    first, is_new = queue.add("ann", {"limit": 1}, 100, "key")
    assert is_new
    assert queue.add("ann", {"limit": 1}, 100, "key") == (first, False)
    assert queue.add("bob", {"limit": 1}, 100, "key")[1]
    assert queue.add("ann", {"limit": 1}, 100)[1]


def test_deaths_are_counted_from_the_last_row_on(queue: JobQueue) -> None:
    first = added(queue)
    queue.take()
    assert [queue.note_death(first, rows) for rows in (0, 0, 8, 8, 8, 12)] == [1, 2, 1, 2, 3, 1]


def test_threads_take_turns(queue: JobQueue) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: queue.add("ann", {"limit": number}, 100)[0].number, range(40)))
    assert sorted(found) == list(range(1, 41))


def test_a_damaged_or_newer_file_is_refused(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(RunError, match=r"jobs\.sqlite cannot be used"):
        JobQueue(path)
    path.unlink()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 2")
    newer.close()
    with pytest.raises(RunError, match="from a newer version"):
        JobQueue(path)


def test_the_key_of_another_request_is_refused(queue: JobQueue) -> None:
    first, _ = queue.add("ann", {"limit": 1}, 100, "key")
    with pytest.raises(RefusedError, match=f"job {first.id} has this Idempotency-Key and other options") as refusal:
        queue.add("ann", {"limit": 2}, 100, "key")
    assert refusal.value.reason is Reason.OTHER
    assert queue.counts() == {QUEUED: 1}


def test_a_full_disk_is_said_and_harms_nothing(queue: JobQueue) -> None:
    first = added(queue)
    (pages,) = queue._connection.execute("PRAGMA page_count").fetchone()
    queue._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RefusedError, match="is full: make room, and try it again") as refusal:
        added(queue, text="x" * 100_000)
    assert refusal.value.reason is Reason.FULL
    queue._connection.execute("PRAGMA max_page_count = 100000")
    added(queue)
    assert [job.id for job in queue.jobs_of("ann", 100)][-1] == first
