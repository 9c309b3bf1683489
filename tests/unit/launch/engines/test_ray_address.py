"""ray_address.py: addresses that do not answer, or want a token. The answers are those that Ray 2.60.0 gave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.launch.engines import ray_address
from bulkinfer.launch.engines.ray_address import require_answer

SETTINGS = b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0" + b"\0\0\0\x04\x01\0\0\0\0"
TAKEN = (
    SETTINGS
    + b"\0\0\x20\x01\x04\0\0\0\x01\x88@\x0ccontent-type\x10application/grpc"
    + b"\0\0\x05\0\0\0\0\0\x01\0\0\0\0\0"
    + b"\0\0\x0f\x01\x05\0\0\0\x01@\x0bgrpc-status\x010"
)
REFUSED = (
    SETTINGS
    + b"\0\0\x5e\x01\x05\0\0\0\x01\x88\0\x0bgrpc-status\x0216"
    + b"\0\x0cgrpc-message>InvalidAuthToken: Authentication token is missing or incorrect"
)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Something that listens on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster and no token of whoever runs the tests. A server of these tests may be late."""
    monkeypatch.setattr(ray_address, "_CONNECT_S", 60.0)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


def answers(server: socket.socket, *in_turn: bytes) -> str:
    """The address of `server`, whose clients get these answers in turn; one that comes with the token "x" gets TAKEN."""

    def serve() -> None:
        for answer in in_turn:
            client, _ = server.accept()
            with client:
                asked = b""
                while not asked.endswith(ray_address._NO_MESSAGE):
                    asked += client.recv(4096)
                client.sendall(TAKEN if b"Bearer x" in asked else answer)

    threading.Thread(target=serve).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_that_speaks_as_ray_does_is_taken(server: socket.socket) -> None:
    require_answer(answers(server, TAKEN))
    for without_address in ("", "local", "auto"):
        require_answer(without_address)


def test_a_cluster_that_asks_for_a_token(server: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The token is searched where Ray does, and must be the right one."""
    address = answers(server, *[REFUSED] * 9)
    with pytest.raises(
        UsageError, match=rf"--ray_address {address}: the cluster asks for a token, and there is none here: copy"
    ):
        require_answer(address)
    kept = tmp_path / ".ray" / "auth_token"
    kept.parent.mkdir()
    kept.write_text("other\n")
    with pytest.raises(UsageError, match="asks for a token, and does not take the one that is found here: copy"):
        require_answer(address)
    kept.write_text("x\n")
    require_answer(address)
    (tmp_path / "mine").write_text("x")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "mine"))
    require_answer(address)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    require_answer(address)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        SETTINGS + b"\0\0\x01\x01\x05\0\0\0\x01\x8d",  # HTTP/2: 404
        b"\0\0",
    ],
)
def test_an_address_at_which_something_else_answers_is_refused(server: socket.socket, answer: bytes) -> None:
    address = answers(server, answer)
    with pytest.raises(UsageError, match=rf"--ray_address {address}: no Ray cluster answers there \(something else does\)"):
        require_answer(address)


def test_an_address_that_says_nothing_is_refused(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_address, "_CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=r"no Ray cluster answers there \(timed out\)"):
        require_answer(f"127.0.0.1:{server.getsockname()[1]}")


def test_an_address_that_nobody_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken, so that nobody else gets it, and at which nothing listens."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UsageError) as caught:
            require_answer("")
    assert str(caught.value) == (
        f"--ray_address {address}: no Ray cluster answers there ([Errno 111] Connection refused): check the address, and that "
        "ray start --head runs on that host"
    )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ray://10.0.0.1:10001", "a launch runs on a node of the cluster, not by Ray Client"),
        ("somewhere", "give HOST:PORT, as ray start --head prints it, or local"),
        ("127.0.0.1:x", "give HOST:PORT"),
        ("127.0.0.1:99999", "no Ray cluster answers there"),
    ],
)
def test_addresses_that_cannot_be_are_refused(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        require_answer(address)
