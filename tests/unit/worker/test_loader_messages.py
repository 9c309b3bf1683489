"""loader_messages.py: messages arrive whole and as they were sent, however long they are and whatever is in a path."""

from __future__ import annotations

import os
import threading

import pytest
from bulkinfer.types import Archive, Facts, Member
from bulkinfer.worker.loader_messages import Pipes, Reply, Request

REQUEST = Request(
    1 << 40,
    3,
    1 << 50,
    [b"/a/b.jpg", b"", b'caf\xe9\xff/\x00\n".png', "ü".encode(), Member(Archive(b"/0.tar", "tar", 9, 8), 7, 6)],
)
REPLIES = [
    Reply(),
    Reply([Facts("JPEG", 1, 640, 480, ("icc_profile", "x"), 12), ("decode", 'truncated "PNG"\n\udce9'), Facts("GIF", 9, 1, 2)]),
    Reply(bug="ZeroDivisionError: ours", seconds={"read": 0.25}, warned={"tag N": 3}),
]


CONTENTS = [b"", None, b"\n{\x00\xff}\n", bytes(range(256)) * 1000]


@pytest.mark.parametrize("request_", [REQUEST, Request(0, 0, 7, [], CONTENTS)], ids=["places", "contents"])
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    assert Request.decode(request_.encode()) == request_


@pytest.mark.parametrize("reply", REPLIES, ids=["empty", "loaded", "bug"])
def test_a_reply_arrives_as_it_was_sent(reply: Reply) -> None:
    assert Reply.decode(reply.encode()) == reply


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 4, 1 << 14, 3_000_000])
def test_messages_arrive_whole(size: int) -> None:
    ours, theirs = Pipes.pair()
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    sender = threading.Thread(target=ours.send, args=(message,))
    sender.start()
    assert theirs.receive() == message
    sender.join()
    ours.close()
    assert theirs.receive() is None
    with pytest.raises(BrokenPipeError):
        theirs.send(b"nobody reads")
    theirs.close()


def test_a_message_in_pieces_is_put_together() -> None:
    ours, theirs = Pipes.pair()

    def drip() -> None:
        for byte in b"\x05\x00\x00\x00\x00\x00\x00\x00hello":
            os.write(ours.descriptors[1], bytes([byte]))

    sender = threading.Thread(target=drip)
    sender.start()
    assert theirs.receive() == b"hello"
    sender.join()
    os.write(ours.descriptors[1], b"\x05\x00\x00\x00\x00\x00\x00\x00hel")
    ours.close()
    assert theirs.receive() is None, "it ended in the middle"
    theirs.close()
