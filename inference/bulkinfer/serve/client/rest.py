"""A client of the protocol over HTTP: one connection, which is opened again if the server has closed it."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from bulkinfer.serve.client.server_facts import ServerError, ServerFacts
from bulkinfer.serve.messages import Reply, Request, TensorFacts
from bulkinfer.serve.refusals import RefusedError
from bulkinfer.serve.rest.json_tensors import HEADER_LENGTH, parse_reply, request_bytes


class RestClient:
    """Requests one after another, from one thread. `tls` is None for plain HTTP."""

    def __init__(self, host: str, port: int, *, token: str, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        if tls is None:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        else:
            self._connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def facts(self, model: str) -> ServerFacts:
        """What the server says of a network. Raises ServerError."""
        _, body = self._ask("GET", f"/v2/models/{model}", None, {})
        try:
            found: dict[str, Any] = json.loads(body)
            kinds = [
                [TensorFacts(each["name"], each["datatype"], tuple(each["shape"])) for each in found[kind]]
                for kind in ("inputs", "outputs")
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError("", f"its description of {model} is none of the protocol ({error!r})") from None
        return ServerFacts(kinds[0], kinds[1])

    def infer(self, request: Request) -> Reply:
        """The reply to a request. Raises ServerError."""
        body, json_size = request_bytes(request)
        headers = {HEADER_LENGTH: str(json_size), "Content-Type": "application/octet-stream"}
        answer, content = self._ask("POST", f"/v2/models/{request.model}/infer", body, headers)
        try:
            return parse_reply(content, answer.getheader(HEADER_LENGTH, ""))
        except RefusedError as error:
            raise ServerError("", f"the answer is none of the protocol: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[Any, bytes]:
        try:
            self._connection.request(method, path, body, {**self._headers, **headers})
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ServerError("", f"the connection failed ({type(error).__name__}: {error})") from None
        if answer.status != http.client.OK:
            raise ServerError(answer.status, f"{answer.status}: {_reason(content)}")
        return answer, content


def _reason(content: bytes) -> str:
    """The message of an error, or the beginning of what came in its place."""
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content[:200].decode("utf-8", "backslashreplace")
