"""Jobs over HTTP without HTTP: what each request does, for the user who sends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.output_lock import output_lock
from bulkinfer.files.user_path import real_path, require_folder_place
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.results.part_names import part_name
from bulkinfer.serve.jobs.command_output import CommandOutput
from bulkinfer.serve.jobs.folders import LOGS, QUEUE_FILE, RESULTS, job_folder
from bulkinfer.serve.jobs.job_queue import ENDED, QUEUED, RUNNING, Job, JobQueue
from bulkinfer.serve.jobs.job_view import job_view
from bulkinfer.serve.jobs.runner import Runner
from bulkinfer.serve.jobs.settings import JobSettings, read_settings
from bulkinfer.serve.jobs.submission import Parse, options_of, words_of
from bulkinfer.serve.jobs.tokens import user_of
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")

ROW_FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
_EVERY_S = 1.0  # between two looks at a job that is watched
_QUIET_S = 15.0  # after which a line is sent that says nothing, so that no proxy ends the connection
_MOST_WATCHED = 200  # watches at once
_MOST_READ = 4  # rows and reports at once
_TICKET_S = 60.0  # in which the address of a report must be opened


class JobService:
    """The jobs of one folder; for one event loop."""

    def __init__(
        self, folder: Path, settings: JobSettings, queue: JobQueue, parse: Parse, check_lock: Callable[[], None]
    ) -> None:
        self.folder, self.settings, self._queue, self._parse = folder, settings, queue, parse
        self.runner = Runner(queue, self._folder_of, self._words, check_lock)
        self._ending, self._watched = asyncio.Event(), 0
        self._output = CommandOutput(_MOST_READ)
        self._tickets: dict[str, tuple[str, str, float]] = {}  # ticket -> user, id of the job, end

    def end(self, within_s: float) -> None:
        """Streams of events end, and the launcher is stopped in order."""
        self._ending.set()
        self.runner.end(within_s)

    def waiting(self) -> int:
        """How many jobs have not ended."""
        counts = self._queue.counts()
        return counts.get(QUEUED, 0) + counts.get(RUNNING, 0)

    def user(self, authorization: str) -> str:
        """The user whose token the header Authorization has. Raises RefusedError if it is none's."""
        return user_of(authorization, self.settings.users)

    async def submit(self, user: str, body: bytes, is_json: bool, request_key: str | None) -> tuple[dict[str, Any], bool]:
        """The new job, and True; or, and False, the one that was submitted with this key before. Raises RefusedError."""
        options = await asyncio.to_thread(
            options_of, body, is_json, self._parse, self.settings, lambda job_id: self._results_of(user, job_id)
        )
        job, is_new = await asyncio.to_thread(self._queue.add, user, options, self.settings.max_queued, request_key)
        self.runner.wake()
        return await self._view(job), is_new

    async def jobs(self, user: str, limit: int) -> list[dict[str, Any]]:
        """The jobs of a user, the newest first."""
        found = await asyncio.to_thread(self._queue.jobs_of, user, limit)
        return [await self._view(job) for job in found]

    async def job(self, user: str, job_id: str) -> dict[str, Any]:
        """One job. Raises RefusedError if the user has no such job, as all methods here do."""
        return await self._view(await self._job(user, job_id))

    async def cancel(self, user: str, job_id: str) -> dict[str, Any]:
        """Cancel a job, unless it has ended; a running one goes on until its launcher has stopped."""
        job = await asyncio.to_thread(self._queue.ask_cancel, user, job_id)
        if job is None:
            raise _no_job(job_id)
        if job.state == RUNNING:
            self.runner.cancel(job_id)
        return await self._view(job)

    async def watch(self, user: str, job_id: str) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The job whenever it has changed, until it has ended or the service ends; None where nothing has for a while."""
        await self._job(user, job_id)
        if self._watched >= _MOST_WATCHED:
            raise RefusedError(Reason.BUSY, f"{_MOST_WATCHED} watches are open: ask again later")
        return self._changes(user, job_id)

    async def _changes(self, user: str, job_id: str) -> AsyncGenerator[dict[str, Any] | None, None]:
        self._watched += 1
        try:
            seen: dict[str, Any] = {}
            said_s = time.monotonic()
            while not self._ending.is_set():
                now = await self.job(user, job_id)
                if now != seen:
                    yield now
                elif time.monotonic() - said_s >= _QUIET_S:
                    yield None
                if now != seen or time.monotonic() - said_s >= _QUIET_S:
                    seen, said_s = now, time.monotonic()
                if now["has_ended"]:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), _EVERY_S)
        finally:
            self._watched -= 1

    async def rows(self, user: str, job_id: str, form: str) -> AsyncGenerator[bytes, None]:
        """The rows that are published, in a format of ROW_FORMATS."""
        output = await self._begun(user, job_id)
        return await self._output.of("rows", str(output), "--format", form, "--to", "-")

    async def parts(self, user: str, job_id: str) -> list[str]:
        """The names of the Parquet files with these rows."""
        output = await self._begun(user, job_id)
        return [part_name(step) for step in await asyncio.to_thread(listed_steps, output)]

    async def part(self, user: str, job_id: str, name: str) -> Path:
        """One of these files."""
        if name not in await self.parts(user, job_id):
            raise RefusedError(Reason.NOT_FOUND, f"job {job_id} has no part {name!r}: ask for the list of its parts")
        return job_folder(self.folder, job_id) / RESULTS / name

    async def report(self, user: str, job_id: str) -> AsyncGenerator[bytes, None]:
        """The page that `bulkinfer report` makes, of the job as it is now."""
        output, folder = await self._begun(user, job_id), job_folder(self.folder, job_id)
        places = (f"--log_path={folder / LOGS}", f"--model_path={self.settings.models}")
        return await self._output.of("report", str(output), "--to", "-", *places)

    async def report_ticket(self, user: str, job_id: str) -> str:
        """A word that opens the report once, within a minute, without the token: a browser sends none with an address."""
        await self._begun(user, job_id)
        now, ticket = time.monotonic(), secrets.token_urlsafe(32)
        self._tickets = {word: found for word, found in self._tickets.items() if found[2] > now}
        self._tickets[ticket] = (user, job_id, now + _TICKET_S)
        return ticket

    async def report_by(self, ticket: str) -> AsyncGenerator[bytes, None]:
        """The report that a ticket opens."""
        user, job_id, end = self._tickets.pop(ticket, ("", "", 0.0))
        if time.monotonic() > end:
            raise RefusedError(Reason.NOT_FOUND, "this address of a report was opened already, or is too old: open it again")
        return await self.report(user, job_id)

    async def _job(self, user: str, job_id: str) -> Job:
        job = await asyncio.to_thread(self._queue.job_of, user, job_id)
        if job is None:
            raise _no_job(job_id)
        return job

    async def _begun(self, user: str, job_id: str) -> Path:
        """The results of a job. Raises RefusedError if it has none yet."""
        job, output = await self._job(user, job_id), job_folder(self.folder, job_id) / RESULTS
        if not output.is_dir():
            raise RefusedError(Reason.NOT_FOUND, f"job {job_id} is {job.state}, and has no rows")
        return output

    async def _view(self, job: Job) -> dict[str, Any]:
        return await asyncio.to_thread(job_view, job, self.folder)

    def _folder_of(self, job_id: str) -> Path:
        return job_folder(self.folder, job_id)

    def _results_of(self, user: str, job_id: str) -> Path | None:
        """The results of a job, which are there or will be."""
        found, output = self._queue.job_of(user, job_id), job_folder(self.folder, job_id) / RESULTS
        return None if found is None or (found.state in ENDED and not output.is_dir()) else output

    def _words(self, job: Job) -> list[str]:
        if job.user not in self.settings.users:
            raise InvalidError("its user is not in jobs.toml any more: add the user there, and submit the job again")
        return words_of(job.options, self._folder_of(job.id), self.settings, lambda job_id: self._results_of(job.user, job_id))


def _no_job(job_id: str) -> RefusedError:
    return RefusedError(Reason.NOT_FOUND, f"there is no job {job_id!r} of yours")


@contextlib.contextmanager
def open_jobs(folder_name: str, parse: Parse) -> Iterator[JobService]:
    """The jobs of a folder, which no other service uses until the block ends.

    Raises UsageError for a folder that is none or has wrong settings, LockedError if another service uses it, RunError if its
    queue is damaged.
    """
    folder = real_path(folder_name)
    if not folder.is_dir():
        raise UsageError(f"--jobs {printable_path(folder)} is no folder: make it, and write its jobs.toml")
    require_folder_place(folder, "--jobs")
    settings = read_settings(folder)
    for key, place in (*(("data", place) for place in settings.data), ("models", settings.models)):
        if not address_of(place) and not os.path.exists(place):
            log.warning(f"warning: --jobs: {key} {printable_path(place)} is not there: jobs that need it fail until it is")
    with (
        output_lock(folder, flag="--jobs", whose="a service") as lease,
        contextlib.closing(JobQueue(folder / QUEUE_FILE)) as queue,
    ):
        counts = queue.counts()
        log.info(
            f"jobs: {len(settings.users)} user(s), {counts.get(QUEUED, 0)} job(s) queued"
            + (", 1 continues" if counts.get(RUNNING) else "")
        )
        yield JobService(folder, settings, queue, parse, lease.check)
