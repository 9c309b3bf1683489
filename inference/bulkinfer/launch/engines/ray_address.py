"""What answers at --ray_address: asked before ray is loaded, which would try for minutes, and needs to know about tokens."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from bulkinfer.errors import UsageError, first_line
from bulkinfer.files.guarded import read_text

LOCAL = "local"  # a cluster of this host, for this launch

_CONNECT_S = 10.0
# Ray speaks gRPC, which is HTTP/2 (RFC 9113). A frame: length, type, flags, stream.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7  # types of frames
_END_STREAM, _END_HEADERS = 1, 4  # flags
_CALL = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/ray.rpc.NodeInfoGcsService/GetClusterId",
    ":authority": "ray",
    "te": "trailers",
    "content-type": "application/grpc",
}
_MOST_BYTES = 1 << 14  # of a frame, unless both sides agree on more
_NO_MESSAGE = b"\0\0\0\0\0"  # of gRPC: not compressed, of no bytes
_REFUSAL = b"InvalidAuthToken"


def given_address(address: str) -> str:
    """HOST:PORT of --ray_address or $RAY_ADDRESS; empty if Ray is to find the cluster of this host, or to start one."""
    given = address or os.environ.get("RAY_ADDRESS", "")
    return "" if given in (LOCAL, "auto") else given


def require_answer(address: str) -> None:
    """Raises UsageError if no cluster answers at the address that was given, or it asks for a token and there is none."""
    if not (given := given_address(address)):
        return
    if given.startswith("ray://"):
        raise UsageError(
            f"--ray_address {given}: a launch runs on a node of the cluster, not by Ray Client: start it there, for example "
            "with ray job submit"
        )
    if refuses(given) and (not (token := found_token()) or refuses(given, token)):
        lack = "does not take the one that is found here" if token else "there is none here"
        raise UsageError(
            f"--ray_address {given}: the cluster asks for a token, and {lack}: copy ~/.ray/auth_token from the host of ray "
            "start --head, or set RAY_AUTH_TOKEN_PATH"
        )


def refuses(given: str, token: str = "") -> bool:
    """True if the cluster at HOST:PORT refuses a call with this token, or without one. Raises UsageError if there is none."""
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--ray_address {given}: give HOST:PORT, as ray start --head prints it, or {LOCAL}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
            connection.sendall(_HELLO + _frame(_SETTINGS, 0, 0, b"") + _request(token))
            said = b"".join(payload for kind, payload in _frames(connection.recv) if kind == _HEADERS)
            if b"grpc" in said:
                return _REFUSAL in said
            why = "something else does"
    except (OSError, OverflowError) as error:
        why = first_line(error)
    raise UsageError(
        f"--ray_address {given}: no Ray cluster answers there ({why}): check the address, and that ray start --head runs "
        "on that host"
    )


def found_token() -> str:
    """The token in one of the places in which Ray documents to search; empty if there is none."""
    if token := os.environ.get("RAY_AUTH_TOKEN", ""):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return read_text(path, _MOST_BYTES).strip()
    except FileNotFoundError:
        return ""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _request(token: str) -> bytes:
    """The call, its fields as literals (RFC 7541, 6.2.2)."""
    call = _CALL | ({"authorization": f"Bearer {token[:100]}"} if token else {})
    fields = b"".join(bytes([0, len(name)]) + name.encode() + bytes([len(text)]) + text.encode() for name, text in call.items())
    return _frame(_HEADERS, _END_HEADERS, 1, fields) + _frame(_DATA, _END_STREAM, 1, _NO_MESSAGE)


def _frames(receive: Callable[[int, int], bytes]) -> Iterator[tuple[int, bytes]]:
    """Type and payload of the frames that come, up to the one that ends the answer; `receive` is that of a socket."""
    while len(head := receive(9, socket.MSG_WAITALL)) == 9:
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
        if (size := int.from_bytes(head[:3], "big")) > _MOST_BYTES:
            return
        yield kind, receive(size, socket.MSG_WAITALL) if size else b""
        if kind == _GOAWAY or (stream == 1 and kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            return
