"""A real S3 server on the loopback interface (moto's), and a proxy before it that delays, refuses or cuts requests."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from bulkinfer.stores.store import _open
from moto.server import ThreadedMotoServer

BUCKET = "bucket"
KEY, SECRET = "testing-id", "testing-secret"
# The machine that runs the tests may have credentials, an endpoint or a proxy of its own.
_OWN = ("AWS_", "GOOGLE_", "AZURE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass
class Server:
    """The server and one bucket in it. `client` is boto3's, which shares no code with what is tested."""

    url: str
    client: Any

    @classmethod
    def of_environment(cls) -> Server:
        """The server that reached_from_here has named."""
        return cls(os.environ["AWS_ENDPOINT_URL"], _client(os.environ["AWS_ENDPOINT_URL"]))

    def environment(self, url: str = "") -> dict[str, str]:
        """What a command needs to find the server, or the proxy at `url`."""
        return {
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }

    def put(self, key: str, data: bytes) -> None:
        """Put an object."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def put_folder(self, folder: Path, prefix: str) -> None:
        """Put all files of a folder below a prefix."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def all_keys(self) -> list[str]:
        """The keys of all objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def remove_all(self) -> None:
        """Remove all objects."""
        while keys := self.all_keys()[:1000]:  # one request takes no more
            self.client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})


def _client(url: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(proxies={}, s3={"addressing_style": "path"}),
    )


@contextmanager
def s3_server() -> Iterator[Server]:
    """Start the server with an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        client = _client(url)
        client.create_bucket(Bucket=BUCKET)
        try:
            yield Server(url, client)
        finally:
            Server(url, client).remove_all()
            client.delete_bucket(Bucket=BUCKET)  # moto's buckets belong to the process, not to the server
    finally:
        server.stop()


@contextmanager
def reached_from_here(server: Server, url: str = "") -> Iterator[None]:
    """Let this process find the server, or the proxy at `url`; clients of other servers are forgotten."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**without_own_credentials(), **server.environment(url)})
    _open.cache_clear()
    try:
        yield
    finally:
        _open.cache_clear()
        os.environ.clear()
        os.environ.update(before)


def without_own_credentials() -> dict[str, str]:
    """The environment without what would lead elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(_OWN)}


@dataclass
class Proxy:
    """Passes requests on. `fault(number, request)` says what becomes of a request: "" (passed on), "503", "expired",
    "reset", "hole" (no answer, ever), or "cut", which ends the answer half-way; bytes are the answer itself; a number of
    seconds delays it. `requests` collects the first lines.
    """

    port: int
    fault: Callable[[int, bytes], str | bytes | float] = lambda _number, _request: ""
    requests: list[bytes] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Gate:
    """For the fault of a proxy: lets so many requests of a kind pass, whatever becomes of them then, and holds the next ones.

    So a process that needs more of them is still there when a test has seen that so many have passed.
    """

    def __init__(self, is_meant: Callable[[bytes], bool], most: int) -> None:
        self._is_meant, self._most, self._passed, self._times = is_meant, most, 0, 0
        self._changed = threading.Condition()

    def lets(self, request: bytes) -> bool:
        """Wait until the request may pass; False if it must not, as `let` was called while it was held."""
        if not self._is_meant(request):
            return True
        with self._changed:
            times = self._times
            self._changed.wait_for(lambda: self._times > times or self._passed < self._most)
            if self._times > times:
                return False
            self._passed += 1
            self._changed.notify_all()
        return True

    def wait(self) -> None:
        """Wait until as many have passed as may."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._passed >= self._most, 300), f"{self._passed} requests have passed"

    def let(self, most: int) -> None:
        """Let as many pass in all, and none of those that are held: the processes that sent them are dead."""
        with self._changed:
            self._most, self._times = most, self._times + 1
            self._changed.notify_all()


@contextmanager
def proxy_before(server_url: str) -> Iterator[Proxy]:
    """Start a proxy before a server."""
    host, port = server_url.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    proxy, numbers, over = Proxy(listener.getsockname()[1]), itertools.count(), threading.Event()
    in_work: list[int] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            while (request := _message(connection)) is not None:
                number = next(numbers)
                in_work.append(number)
                proxy.most_at_once = max(proxy.most_at_once, len(in_work))
                proxy.requests.append(request.partition(b"\r\n")[0])
                fault = proxy.fault(number, request)
                try:
                    if isinstance(fault, float):
                        over.wait(fault)
                    if fault == "hole":
                        over.wait()
                    if fault in ("reset", "hole"):
                        return
                    if isinstance(fault, bytes):
                        connection.sendall(fault)
                        return
                    answer = _ANSWERS.get(fault) or _ask((host, int(port)), request)
                    connection.sendall(answer[: len(answer) // 2] if fault == "cut" else answer)
                    if fault == "cut":
                        return
                except OSError:  # the client has gone
                    return
                finally:
                    in_work.remove(number)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield proxy
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_ANSWERS: dict[str | float, bytes] = {
    "503": b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
    "expired": b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_EXPIRED), _EXPIRED),
}


def _message(connection: socket.socket) -> bytes | None:
    """One request with its body; None when the client has gone, which may be in the middle of it."""
    data, whole = b"", 0
    while not whole or len(data) < whole:
        try:
            part = connection.recv(1 << 16)
        except OSError:
            return None
        if not part:
            return None
        data += part
        if not whole and (end := data.find(b"\r\n\r\n")) >= 0:
            headers = dict(line.lower().split(b": ", 1) for line in data[:end].split(b"\r\n")[1:])
            whole = end + 4 + int(headers.get(b"content-length", b"0"))
    return data


def _ask(place: tuple[str, int], request: bytes) -> bytes:
    """The answer of the server to one request, on a connection of its own."""
    head, end, body = request.partition(b"\r\n\r\n")
    with socket.create_connection(place) as upstream:
        upstream.sendall(head + b"\r\nConnection: close" + end + body)
        pieces = []
        while piece := upstream.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces).replace(b"Connection: close\r\n", b"", 1)
