"""What a command of bulkinfer writes to stdout, streamed to a client.

Reports decode pictures, and rows may be larger than memory. Both run in processes of their own, so that neither can end the
service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from bulkinfer.serve.jobs.tied_command import tied_words
from bulkinfer.serve.refusals import Reason, RefusedError

log = logging.getLogger("bulkinfer")

_PIECE_BYTES = 1 << 16


class CommandOutput:
    """Runs at most `most` commands at once."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._reaping: set[asyncio.Task[None]] = set()

    async def of(self, command: str, *words: str) -> AsyncGenerator[bytes, None]:
        """The output of a command, in pieces; its process ends with the iterator.

        Raises RefusedError if too many run already, or the command ends with an error before it has written anything; a later
        error ends the iterator with one, so that the client sees that its answer is not whole.
        """
        if not self._free:
            raise RefusedError(Reason.BUSY, "as many rows and reports as may be are being read: ask again later")
        self._free -= 1
        try:
            process = await asyncio.create_subprocess_exec(
                *tied_words(command, *words), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self._free += 1
            raise
        pieces = self._pieces(process)
        await anext(pieces)
        return pieces

    async def _pieces(self, process: asyncio.subprocess.Process) -> AsyncGenerator[bytes, None]:
        """An empty piece once the command has written something, or has ended well; then its output."""
        assert process.stdout is not None
        assert process.stderr is not None
        said = asyncio.create_task(process.stderr.read())
        try:
            piece = await process.stdout.read(_PIECE_BYTES)
            if piece:
                yield b""
            while piece:
                yield piece
                piece = await process.stdout.read(_PIECE_BYTES)
            if code := await process.wait():
                words = (await said).decode("utf-8", "backslashreplace").strip().splitlines()
                raise RefusedError(Reason.NOT_FOUND, words[-1] if words else f"the command has ended with code {code}")
            yield b""
        finally:  # where the client has gone, every await here would end at once
            self._free += 1
            if process.returncode is None:
                process.kill()
            task = asyncio.create_task(_reap(process, said))
            self._reaping.add(task)
            task.add_done_callback(self._reaping.discard)


async def _reap(process: asyncio.subprocess.Process, said: asyncio.Task[bytes]) -> None:
    """Read what is left of the output of a process that ends: its pipes are closed then."""
    assert process.stdout is not None
    while await process.stdout.read(_PIECE_BYTES):
        pass
    await process.wait()
    await said
