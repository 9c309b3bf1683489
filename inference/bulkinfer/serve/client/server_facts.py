"""What a client knows of a server, and how it fails, whatever the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bulkinfer.errors import RunError
from bulkinfer.serve.messages import Reply, Request, TensorFacts


class ServerError(RunError):
    """A server has given no answer. `status` is its HTTP status or the name of its gRPC status; '' if none came."""

    def __init__(self, status: int | str, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The inputs and outputs of a network, as the server describes them."""

    inputs: list[TensorFacts]
    outputs: list[TensorFacts]


class Client(Protocol):
    """A connection to a server. Methods raise ServerError."""

    def facts(self, model: str) -> ServerFacts: ...

    def infer(self, request: Request) -> Reply: ...

    def close(self) -> None: ...
