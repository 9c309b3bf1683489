"""Why a request gets no answer, in the words of both protocols."""

from __future__ import annotations

from enum import Enum

from bulkinfer.errors import BulkinferError


class Reason(Enum):
    """A reason, with its HTTP status and the name of its gRPC status."""

    INVALID = (400, "INVALID_ARGUMENT")
    NO_TOKEN = (401, "UNAUTHENTICATED")
    NOT_FOUND = (404, "NOT_FOUND")
    OTHER = (409, "ALREADY_EXISTS")
    SLOW = (408, "DEADLINE_EXCEEDED")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    ENCODED = (415, "UNIMPLEMENTED")
    BUSY = (429, "RESOURCE_EXHAUSTED")
    GONE = (499, "CANCELLED")
    FAILED = (500, "INTERNAL")
    ENDING = (503, "UNAVAILABLE")
    LATE = (504, "DEADLINE_EXCEEDED")
    FULL = (507, "RESOURCE_EXHAUSTED")

    @property
    def http_status(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def grpc_status(self) -> str:
        """The name of the status in grpc.StatusCode."""
        return self.value[1]


class RefusedError(BulkinferError):
    """A request is refused, or cannot be answered; the message is for the client."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidError(RefusedError):
    """The request itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.INVALID, message)
