"""Runs the jobs of a queue, one after another: each is the command infer_launch, as often as it takes until it has ended.

The launcher itself continues what an earlier one has done, so nothing else is needed after a kill of either process. It ends
with this process (tied_command.py), and the next one waits until it has.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bulkinfer.errors import escaped, os_error_sentence
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.output_lock import living_holder
from bulkinfer.files.own_folder import own_folder
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.serve.jobs.folders import ERRORS_FILE, LOG_FILE, RESULTS
from bulkinfer.serve.jobs.job_queue import CANCELLED, DONE, FAILED, Job, JobQueue
from bulkinfer.serve.jobs.tied_command import tied_words
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError

log = logging.getLogger("bulkinfer")

_COMPLETE = (0, 3)  # exit codes of a launch that has a row for every picture
_BY_SIGNAL = (129, 130, 143)
_MOST_DEATHS = 10  # of launchers in a row that add no row
_PATIENCE_S = 60.0  # for a launcher that is stopped because its job is cancelled
_LOOK_S = 0.1  # between two looks at the lock of a launcher that is ending
_FULL_S = 2.0  # between two tries to change the queue while its disk is full
_END_BYTES = 1 << 16  # of the file of errors, that are read


T = TypeVar("T")


class Runner:
    """For one event loop. `words(job)` are those of its infer_launch; InvalidError says that it must not run any more.

    `check_lock()` raises if another service has taken over the folder.
    """

    def __init__(
        self,
        queue: JobQueue,
        folder_of: Callable[[str], Path],
        words: Callable[[Job], list[str]],
        check_lock: Callable[[], None],
    ) -> None:
        self._queue, self._folder_of, self._words, self._check_lock = queue, folder_of, words, check_lock
        self._changed = asyncio.Event()  # a job came, or the service ends
        self._is_ending = False
        self._job_id, self._cancelled = "", set[str]()  # the job that is being worked at; those whose launcher has to stop
        self._launcher: asyncio.subprocess.Process | None = None
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Work at jobs until the service ends. Raises RunError if the queue or its folder is lost."""
        while not self._is_ending:
            self._changed.clear()
            await asyncio.to_thread(self._check_lock)
            job = await self._kept(self._queue.take)
            if job is None:
                await self._changed.wait()
                continue
            self._job_id = job.id
            if job.is_cancel_asked:
                await self._finish(job, CANCELLED, None)
            elif not self._is_ending:
                await self._work_at(job)

    def wake(self) -> None:
        """There is a new job."""
        self._changed.set()

    def cancel(self, job_id: str) -> None:
        """Stop the launcher of a running job; the queue knows already that it is cancelled."""
        self._cancelled.add(job_id)
        if job_id == self._job_id:
            self._stop(_PATIENCE_S)

    def end(self, within_s: float) -> None:
        """Stop the launcher in order; its job is continued by the next service. Afterwards run() returns."""
        self._is_ending = True
        self._changed.set()
        self._stop(within_s)

    def _stop(self, within_s: float) -> None:
        """Send the launcher SIGTERM, and SIGKILL if it does not end within this time."""
        launcher = self._launcher
        if launcher is None or launcher.returncode is not None:
            return
        launcher.terminate()
        if self._killer is not None:
            self._killer.cancel()
        self._killer = asyncio.get_running_loop().call_later(within_s, launcher.kill)

    async def _work_at(self, job: Job) -> None:
        """One launch of a job, and what follows from its end."""
        folder = self._folder_of(job.id)
        try:
            words = await asyncio.to_thread(self._words, job)
            folder.mkdir(parents=True, exist_ok=True)
            await self._until_unlocked(folder / RESULTS)
            log.info(f"job {job.id} of {job.user}: {'continues' if (folder / RESULTS).exists() else 'begins'}")
            code = await self._launch(job, folder, words)
        except (InvalidError, OSError) as error:
            reason = os_error_sentence(error) if isinstance(error, OSError) else str(error)
            await self._finish(job, FAILED, None, reason)
            return
        if code in _COMPLETE:
            await self._finish(job, DONE, code)
        elif job.id in self._cancelled:
            await self._finish(job, CANCELLED, code)
        elif self._is_ending:
            await self._kept(self._queue.put_back, job.id)
        elif code < 0 or code in _BY_SIGNAL:
            await self._died(job, folder, code)
        else:
            await self._finish(job, FAILED, code, await asyncio.to_thread(last_words, folder))

    async def _until_unlocked(self, output: Path) -> None:
        """Until a launcher of an earlier service, which was killed with it, has ended."""
        while not self._is_ending and await asyncio.to_thread(living_holder, own_folder(output)) is not None:
            await asyncio.sleep(_LOOK_S)

    async def _launch(self, job: Job, folder: Path, words: list[str]) -> int:
        """The exit code of a launcher; negative after a signal that it did not handle."""
        if self._is_ending or job.id in self._cancelled:
            return -signal.SIGTERM
        with (folder / LOG_FILE).open("ab") as out, (folder / ERRORS_FILE).open("wb") as errors:
            self._launcher = await asyncio.create_subprocess_exec(
                *tied_words("infer_launch", *words), cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        if self._is_ending or job.id in self._cancelled:  # meanwhile
            self._stop(_PATIENCE_S)
        try:
            return await self._launcher.wait()
        finally:
            self._launcher = None
            if self._killer is not None:
                self._killer.cancel()
                self._killer = None

    async def _died(self, job: Job, folder: Path, code: int) -> None:
        rows = await asyncio.to_thread(_count_rows, folder / RESULTS)
        deaths = await self._kept(self._queue.note_death, job.id, rows)
        how = signal.Signals(-code if code < 0 else code - 128).name
        if deaths >= _MOST_DEATHS:
            await self._finish(job, FAILED, code, f"its launcher was ended by {how} {deaths} times without a further row")
        else:
            log.warning(f"warning: job {job.id}: its launcher was ended by {how}: it is started again")

    async def _kept(self, change: Callable[..., T], *values: Any) -> T:
        """Change the queue, as soon as its disk has room; unless the service ends, which leaves the job to the next one."""
        has_warned = False
        while True:
            try:
                return await asyncio.to_thread(change, *values)
            except RefusedError as error:
                if error.reason is not Reason.FULL or self._is_ending:
                    raise
                if not has_warned:
                    log.warning(f"warning: {error}; jobs wait until then")
                has_warned = True
                await asyncio.sleep(_FULL_S)

    async def _finish(self, job: Job, state: str, code: int | None, reason: str = "") -> None:
        await self._kept(self._queue.finish, job.id, state, code, reason)
        self._cancelled.discard(job.id)
        log.info(f"job {job.id} of {job.user}: {state}{f': {reason}' if reason else ''}")


def _count_rows(output: Path) -> int:
    return sum(map(len, listed_steps(output)))


def last_words(folder: Path) -> str:
    """The last line that a launcher has written to stderr: the sentence about what is wrong."""
    with open_regular(folder / ERRORS_FILE) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
        lines = file.read().decode("utf-8", "backslashreplace").strip().splitlines()
    return escaped(lines[-1]) if lines else f"its launcher has ended without a word; {LOG_FILE} in its folder may say why"
