"""gate.py: who comes in, how many bytes there is room for, and the wait for the end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from bulkinfer.serve.gate import Gate
from bulkinfer.serve.refusals import Reason, RefusedError


def test_none_comes_in_while_the_server_ends_and_all_inside_are_waited_for() -> None:
    async def act() -> None:
        gate, inside, leave = Gate(10), asyncio.Event(), asyncio.Event()

        async def request() -> None:
            async with gate.entered():
                inside.set()
                await leave.wait()

        task = asyncio.create_task(request())
        await inside.wait()
        assert gate.open == 1
        assert not await gate.end(0.0)
        with pytest.raises(RefusedError) as refusal:
            async with gate.entered():
                pass
        assert refusal.value.reason is Reason.ENDING
        leave.set()
        assert await gate.end(60.0)
        await task
        assert gate.open == 0

    asyncio.run(act())


def test_without_requests_the_end_comes_at_once() -> None:
    assert asyncio.run(Gate(10).end(0.0))


def test_bytes_take_room_until_the_request_ends() -> None:
    gate = Gate(10)
    with contextlib.ExitStack() as others:
        for _ in range(16):
            others.enter_context(gate.room()).hold(10)
        with gate.room() as room, pytest.raises(RefusedError) as refusal:
            room.hold(1)
        assert refusal.value.reason is Reason.BUSY
    assert gate.room_bytes == 160
    with gate.room() as room:
        room.hold(4)
        room.hold(9)
        room.hold(2)  # it holds more already
        assert (room.held_bytes, gate.room_bytes) == (9, 151)
        with pytest.raises(RefusedError, match="at most 10 bytes"):
            room.hold(11)
    assert gate.room_bytes == 160


def test_a_request_has_a_largest_size() -> None:
    gate = Gate(10)
    gate.check_size(10)
    with pytest.raises(RefusedError, match="at most 10 bytes") as refusal:
        gate.check_size(11)
    assert refusal.value.reason is Reason.TOO_LARGE
