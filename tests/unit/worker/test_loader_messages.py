"""loader_messages.py: messages arrive whole and as they were sent, however long they are and whatever is in a path."""

from __future__ import annotations

import socket
import threading

import pytest
from bulkinfer.types import Facts
from bulkinfer.worker.loader_messages import Reply, Request, receive, send

REQUEST = Request(1 << 40, 3, 1 << 50, [b"/a/b.jpg", b"", b'caf\xe9\xff/\x00\n".png', "ü".encode()])
REPLIES = [
    Reply(),
    Reply([Facts("JPEG", 1, 640, 480, ("icc_profile", "x"), 12), ("decode", 'truncated "PNG"\n\udce9'), Facts("GIF", 9, 1, 2)]),
    Reply(bug="ZeroDivisionError: ours", seconds={"read": 0.25}, warned={"tag N": 3}),
]


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def test_a_request_arrives_as_it_was_sent() -> None:
    assert Request.decode(REQUEST.encode()) == REQUEST


@pytest.mark.parametrize("reply", REPLIES, ids=["empty", "loaded", "bug"])
def test_a_reply_arrives_as_it_was_sent(reply: Reply) -> None:
    assert Reply.decode(reply.encode()) == reply


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 4, 1 << 14, 3_000_000])
def test_messages_arrive_whole(pair: tuple[socket.socket, socket.socket], size: int) -> None:
    ours, theirs = pair
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    sender = threading.Thread(target=send, args=(ours, message))
    sender.start()
    assert receive(theirs) == message
    sender.join()
    ours.close()
    assert receive(theirs) is None
    theirs.close()


def test_a_message_in_pieces_is_put_together(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    def drip() -> None:
        for byte in b"\x05\x00\x00\x00hello":
            ours.sendall(bytes([byte]))

    with ours, theirs:
        sender = threading.Thread(target=drip)
        sender.start()
        assert receive(theirs) == b"hello"
        sender.join()


def test_the_other_end_ends_in_the_middle(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.sendall(b"\x05\x00\x00\x00hel")
    send(theirs, b"unread")
    ours.close()  # with a message unread: the connection is reset
    with theirs:
        assert receive(theirs) is None
