"""A server of `bulkinfer serve` for a test, and clients of it: ours, and plain sockets."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.serve.client.rest import RestClient
from bulkinfer.serve.client.rpc import GrpcClient
from bulkinfer.serve.client.server_facts import Client
from bulkinfer.serve.messages import Reply, Request
from bulkinfer.serve.tensors import Tensor, tensor_of

from tests.commands import command

TIMEOUT_S = 120.0
ON_CPU = ("--device", "cpu", "--precision", "fp32")
_READY = re.compile(r"ready: (?:REST at (?P<url>\S+?):(?P<rest>\d+))?(?:, )?(?:gRPC at \S+:(?P<grpc>\d+))?\n")


@dataclass
class Server:
    """A server that runs. `lines` are those that it has printed before it was ready, `said` the others, after its end."""

    process: subprocess.Popen[str]
    rest: int
    grpc: int
    lines: list[str]
    said: str = ""
    errors: str = ""
    clients: list[Client] = field(default_factory=list)

    def client(self, protocol: str, *, token: str = "", timeout_s: float = TIMEOUT_S) -> Client:
        """A client, which is closed with the server."""
        made: Client = (
            RestClient("127.0.0.1", self.rest, token=token, tls=None, timeout_s=timeout_s)
            if protocol == "rest"
            else GrpcClient("127.0.0.1", self.grpc, token=token, tls_ca=None, timeout_s=timeout_s)
        )
        self.clients.append(made)
        return made

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, content (JSON, else text) and headers of an answer over HTTP, by a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rest, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            text = answer.read().decode()
            found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(text) if "json" in found.get("content-type", "") else text, found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; returns the exit code."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        said, errors = self.process.communicate(timeout=TIMEOUT_S)
        self.said += said
        self.errors += errors
        return self.process.returncode


@contextlib.contextmanager
def serving(cwd: Path, *words: object, env: dict[str, str] | None = None) -> Iterator[Server]:
    """`bulkinfer serve` with these words, at free ports, ready; it is killed at the end of the block if it still runs."""
    asked = ("--port", 0, "--grpc_port", 0)
    with subprocess.Popen(
        ["env", "--default-signal=INT,TERM,HUP", *command("bulkinfer", "serve", *asked, *words)],
        cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        lines = []
        try:
            for line in process.stdout:
                if found := _READY.fullmatch(line):
                    server = Server(process, int(found["rest"] or 0), int(found["grpc"] or 0), lines)
                    break
                lines.append(line)
            else:
                raise AssertionError((lines, process.communicate()))
            try:
                yield server
            finally:
                for client in server.clients:
                    client.close()
        finally:
            process.kill()


def infer(client: Client, values: np.ndarray | list[bytes], *outputs: str, model: str = "tiny") -> dict[str, Any]:
    """The outputs by name, for tensors or encoded pictures."""
    tensor = tensor_of("pictures" if isinstance(values, list) else "images", values)
    return outputs_of(client.infer(Request(model, "", "", (tensor,), outputs)))


def outputs_of(reply: Reply) -> dict[str, Any]:
    """Arrays by name; BYTES as lists of text."""
    return {tensor.name: _plain(tensor) for tensor in reply.outputs}


def _plain(tensor: Tensor) -> Any:
    if not isinstance(tensor.values, list):
        return tensor.values
    return np.array([value.decode() for value in tensor.values], object).reshape(tensor.shape).tolist()


def leave(client: Client) -> None:
    """Close the connection of a client from another thread than the one that waits for its answer."""
    if isinstance(client, RestClient):
        client._connection.sock.shutdown(socket.SHUT_RDWR)  # to close it would not wake the thread
    else:
        client.close()


def free_port() -> int:
    """A port at which nothing listens, below those that the system gives to whoever asks for any."""
    for port in random.sample(range(20_000, 32_000), 1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@contextlib.contextmanager
def usual_ports() -> Iterator[None]:
    """No other test uses the ports that commands take when none is given, until the block ends."""
    with (Path(tempfile.gettempdir()) / "bulkinfer-tests-usual-ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def raw_connection(port: int) -> socket.socket:
    """A connection to write what no client would."""
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found
