"""The durable queue: one SQLite file, one transaction for each change of a job.

A job is queued, then running, and ends as done, failed or cancelled. At most one is running, which an index of the table keeps.
Synced writes (WAL, synchronous FULL): what add() has returned is there after a power cut.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, RunError, first_line
from bulkinfer.results.status_file import utc_text
from bulkinfer.serve.refusals import Reason, RefusedError
from bulkinfer.types import printable_path

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
ENDED = (DONE, FAILED, CANCELLED)
_VERSION = 1  # of the table
_TABLE = f"""
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  user TEXT NOT NULL,
  request_key TEXT,
  options TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT '{QUEUED}' CHECK (state IN ('{QUEUED}', '{RUNNING}', '{DONE}', '{FAILED}', '{CANCELLED}')),
  is_cancel_asked INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,
  rows_at_death INTEGER NOT NULL DEFAULT 0,
  submitted TEXT NOT NULL,
  started TEXT,
  ended TEXT,
  exit_code INTEGER,
  reason TEXT NOT NULL DEFAULT '',
  UNIQUE (user, request_key)
) STRICT;
CREATE UNIQUE INDEX one_running ON jobs (state) WHERE state = '{RUNNING}';
CREATE INDEX by_user ON jobs (user, number);
"""
_COLUMNS = "number, id, user, options, state, is_cancel_asked, deaths, submitted, started, ended, exit_code, reason"


@dataclass(frozen=True)
class Job:
    """One job. `options` are those of infer_launch, `deaths` counts launchers that died in a row without a further row.

    Times are text; `exit_code` is that of the launcher, None while there is none. `reason` says why a job has failed.
    """

    number: int
    id: str
    user: str
    options: dict[str, Any]
    state: str
    is_cancel_asked: bool
    deaths: int
    submitted: str
    started: str | None
    ended: str | None
    exit_code: int | None
    reason: str


class JobQueue:
    """The jobs of all users. Every method is one transaction; threads take turns.

    Methods that change something raise RefusedError where the disk is full.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises RunError if it is damaged or from a newer version."""
        self._turn, self._shown = threading.Lock(), printable_path(path)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _prepare(self) -> None:
        with self._transaction() as cursor:
            (version,) = cursor.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise RunError(f"{self._shown} is from a newer version of bulkinfer: install that version")
            if not version:
                for statement in filter(str.strip, _TABLE.split(";")):
                    cursor.execute(statement)
                cursor.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    def add(self, user: str, options: dict[str, Any], max_queued: int, request_key: str | None = None) -> tuple[Job, bool]:
        """The new job of a user, and True; or, and False, the one that the user has submitted with this key before.

        Raises RefusedError if the user has `max_queued` jobs that have not ended, or used the key for other options.
        """
        with self._transaction() as cursor:
            if request_key is not None:
                query = f"SELECT {_COLUMNS} FROM jobs WHERE user = ? AND request_key = ?"
                if (row := cursor.execute(query, (user, request_key)).fetchone()) is not None:
                    if (known := _job(row)).options != options:
                        raise RefusedError(
                            Reason.OTHER, f"job {known.id} has this Idempotency-Key and other options: give a new key"
                        )
                    return known, False
            query = "SELECT count(*) FROM jobs WHERE user = ? AND state IN (?, ?)"
            (count,) = cursor.execute(query, (user, QUEUED, RUNNING)).fetchone()
            if count >= max_queued:
                raise RefusedError(Reason.BUSY, f"{count} jobs of yours have not ended (max_queued): submit it again later")
            values = (secrets.token_hex(8), user, request_key, json.dumps(options), utc_text(time.time()))
            cursor.execute("INSERT INTO jobs (id, user, request_key, options, submitted) VALUES (?, ?, ?, ?, ?)", values)
            return self._of_id(cursor, values[0]), True

    def jobs_of(self, user: str, limit: int) -> list[Job]:
        """The jobs of a user, the newest first."""
        with self._transaction() as cursor:
            query = f"SELECT {_COLUMNS} FROM jobs WHERE user = ? ORDER BY number DESC LIMIT ?"
            return [_job(row) for row in cursor.execute(query, (user, limit))]

    def job_of(self, user: str, job_id: str) -> Job | None:
        """The job of a user with this id; None if the user has no such job."""
        with self._transaction() as cursor:
            query = f"SELECT {_COLUMNS} FROM jobs WHERE user = ? AND id = ?"
            row = cursor.execute(query, (user, job_id)).fetchone()
            return None if row is None else _job(row)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        with self._transaction() as cursor:
            return dict(cursor.execute("SELECT state, count(*) FROM jobs GROUP BY state"))

    def take(self) -> Job | None:
        """The job to work at: the one that is running already, since its launcher has ended with the service; else the oldest
        queued one, which is running from now on. None if there is none.
        """
        with self._transaction() as cursor:
            row = cursor.execute(f"SELECT {_COLUMNS} FROM jobs WHERE state = ?", (RUNNING,)).fetchone()
            if row is not None:
                return _job(row)
            row = cursor.execute("SELECT id FROM jobs WHERE state = ? ORDER BY number LIMIT 1", (QUEUED,)).fetchone()
            if row is None:
                return None
            self._change(cursor, row[0], QUEUED, "state = ?, started = coalesce(started, ?)", RUNNING, utc_text(time.time()))
            return self._of_id(cursor, row[0])

    def put_back(self, job_id: str) -> None:
        """A running job is queued again, before all others: its launcher was stopped in order."""
        with self._transaction() as cursor:
            self._change(cursor, job_id, RUNNING, "state = ?", QUEUED)

    def finish(self, job_id: str, state: str, exit_code: int | None, reason: str = "") -> None:
        """A running job has ended."""
        assert state in ENDED, state
        with self._transaction() as cursor:
            now = utc_text(time.time())
            self._change(
                cursor, job_id, RUNNING, "state = ?, ended = ?, exit_code = ?, reason = ?", state, now, exit_code, reason
            )

    def note_death(self, job_id: str, rows: int) -> int:
        """The launcher of a running job has died, with so many rows published; returns how many did in a row without more."""
        with self._transaction() as cursor:
            change = "deaths = CASE WHEN ? > rows_at_death THEN 1 ELSE deaths + 1 END, rows_at_death = ?"
            self._change(cursor, job_id, RUNNING, change, rows, rows)
            return self._of_id(cursor, job_id).deaths

    def ask_cancel(self, user: str, job_id: str) -> Job | None:
        """Cancel a job of a user, and return it as it is then; None if the user has no such job.

        A queued one is cancelled at once. A running one is noted, and ends as cancelled when its launcher has stopped. One that
        has ended stays as it is.
        """
        with self._transaction() as cursor:
            query = "SELECT state FROM jobs WHERE user = ? AND id = ?"
            if (row := cursor.execute(query, (user, job_id)).fetchone()) is None:
                return None
            if row[0] == QUEUED:
                values = (CANCELLED, utc_text(time.time()))
                self._change(cursor, job_id, QUEUED, "is_cancel_asked = 1, state = ?, ended = ?", *values)
            elif row[0] == RUNNING:
                self._change(cursor, job_id, RUNNING, "is_cancel_asked = 1")
            return self._of_id(cursor, job_id)

    @staticmethod
    def _change(cursor: sqlite3.Cursor, job_id: str, state: str, change: str, *values: Any) -> None:
        """Change a job that is in this state."""
        cursor.execute(f"UPDATE jobs SET {change} WHERE id = ? AND state = ?", (*values, job_id, state))
        assert cursor.rowcount == 1, f"job {job_id} is not {state}"

    @staticmethod
    def _of_id(cursor: sqlite3.Cursor, job_id: str) -> Job:
        return _job(cursor.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone())

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """All of the block, or nothing of it."""
        with self._turn:
            cursor = self._connection.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._failure(error) from None
                raise
            finally:
                cursor.close()

    def _failure(self, error: sqlite3.Error) -> BulkinferError:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:  # errors of the module itself have none
            return RefusedError(Reason.FULL, f"the disk with {self._shown} is full: make room, and try it again")
        return RunError(
            f"{self._shown} cannot be used ({first_line(error)}): make room, or restore it from a backup; moved away, it "
            "leaves an empty queue"
        )


def _job(row: tuple[Any, ...]) -> Job:
    number, job_id, user, options, state, is_cancel_asked, *rest = row
    return Job(number, job_id, user, json.loads(options), state, bool(is_cancel_asked), *rest)
