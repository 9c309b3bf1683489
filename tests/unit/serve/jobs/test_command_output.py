"""The output of a command comes in pieces; an error before the first one is an answer, and a client that goes ends it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

import pytest
from bulkinfer.serve.jobs import command_output as module
from bulkinfer.serve.jobs.command_output import CommandOutput
from bulkinfer.serve.refusals import Reason, RefusedError

LONG = "import sys\nwhile True: sys.stdout.write('row\\n' * 10000)"


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is a small program here."""
    monkeypatch.setattr(module, "tied_words", lambda program: [sys.executable, "-c", program])


async def ended(output: CommandOutput) -> None:
    """Until its processes have ended, and their pipes are closed."""
    await asyncio.gather(*output._reaping)
    await asyncio.sleep(0)


async def all_of(pieces: AsyncGenerator[bytes, None]) -> bytes:
    return b"".join([piece async for piece in pieces])


def test_all_of_it_comes() -> None:
    async def act() -> bytes:
        output = CommandOutput(1)
        found = await all_of(await output.of("print('row\\n' * 100_000, end='')"))
        await ended(output)
        return found

    assert asyncio.run(act()) == b"row\n" * 100_000


def test_an_output_may_be_empty() -> None:
    async def act() -> bytes:
        output = CommandOutput(1)
        found = await all_of(await output.of(""))
        await ended(output)
        return found

    assert asyncio.run(act()) == b""


def test_an_error_before_the_first_piece_is_the_answer() -> None:
    async def act() -> None:
        output = CommandOutput(1)
        for _ in range(3):
            with pytest.raises(RefusedError, match="no such job") as refusal:
                await output.of("import sys; sys.exit('a note\\nno such job')")
            assert refusal.value.reason is Reason.NOT_FOUND
        await ended(output)

    asyncio.run(act())


def test_a_later_error_ends_the_output_with_one() -> None:
    async def act() -> None:
        output = CommandOutput(1)
        pieces = await output.of("import sys; sys.stdout.write('row'); sys.stdout.flush(); sys.exit('damaged')")
        assert await anext(pieces) == b"row"
        with pytest.raises(RefusedError, match="damaged"):
            await anext(pieces)
        await ended(output)

    asyncio.run(act())


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_client_that_goes_makes_room(is_cancelled: bool) -> None:
    async def act() -> None:
        output = CommandOutput(1)
        pieces = await output.of(LONG)
        with pytest.raises(RefusedError) as refusal:
            await output.of("")
        assert refusal.value.reason is Reason.BUSY
        if is_cancelled:
            reading = asyncio.create_task(all_of(pieces))
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.wait([reading])
        else:
            await pieces.aclose()
        assert await all_of(await output.of("import sys; sys.stdout.write('next')")) == b"next"
        await ended(output)

    asyncio.run(act())
