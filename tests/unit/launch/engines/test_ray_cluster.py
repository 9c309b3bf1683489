"""ray_cluster.py without a cluster: addresses that do not answer, a package that is missing, what Ray says in an error."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.launch.engines import ray_cluster
from bulkinfer.launch.engines.ray_cluster import require_answer, require_ray

HELLO = 33  # bytes: the preface and an empty SETTINGS frame


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Something that listens on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def answers(server: socket.socket, answer: bytes) -> str:
    """The address of `server`, which gives one client this answer."""

    def serve() -> None:
        client, _ = server.accept()
        with client:
            assert len(client.recv(HELLO, socket.MSG_WAITALL)) == HELLO
            client.sendall(answer)

    threading.Thread(target=serve).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_that_speaks_as_ray_does_is_taken(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    require_answer(answers(server, b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for without_address in ("", "local", "auto"):
        require_answer(without_address)


def test_an_address_at_which_something_else_answers_is_refused(server: socket.socket) -> None:
    address = answers(server, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(UsageError, match=rf"--ray_address {address}: no Ray cluster answers there \(something else does\)"):
        require_answer(address)


def test_an_address_that_says_nothing_is_refused(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=r"no Ray cluster answers there \(timed out\)"):
        require_answer(f"127.0.0.1:{server.getsockname()[1]}")


def test_an_address_that_nobody_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        address = f"127.0.0.1:{once.getsockname()[1]}"
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


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"--engine ray needs the package ray, which is not installed: pip install .*\[ray\]"):
        require_ray()


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        (
            "",
            ConnectionError("Could not find any running Ray instance"),
            "this host is no node of a Ray cluster: run ray start",
        ),
        (
            "h:1",
            RuntimeError("Version mismatch: The cluster was\nstarted with: Ray: 2.9"),
            "different versions: Version mismatch: ",
        ),
        ("h:1", RuntimeError("no raylet"), r"--ray_address h:1: no connection \(no raylet\): run the launch on a node"),
    ],
)
def test_what_ray_refuses_is_one_sentence(address: str, error: Exception, words: str) -> None:
    sentence = ray_cluster._why_not(address, error)
    assert re.search(words, sentence)
    assert "\n" not in sentence
