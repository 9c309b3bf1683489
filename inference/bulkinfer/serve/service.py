"""The service behind both protocols: finds the network, has the request answered, counts."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.serve.gate import Gate
from bulkinfer.serve.messages import VERSION, Reply, Request
from bulkinfer.serve.metrics import Metrics
from bulkinfer.serve.network import ServedNetwork
from bulkinfer.serve.refusals import Reason, RefusedError

log = logging.getLogger("bulkinfer")

NAME = "bulkinfer"
REST_EXTENSIONS = ("binary_tensor_data",)
_SCHEME = "bearer "


@dataclass(frozen=True)
class Service:
    """What both protocols share. `token` is empty if clients need none, `timeout_s` bounds arrival and answer of a request."""

    networks: dict[str, ServedNetwork]
    gate: Gate
    metrics: Metrics
    token: str
    timeout_s: float

    def check_token(self, authorization: str) -> None:
        """Raises RefusedError unless the value of the header Authorization has the token."""
        if not self.token:
            return
        given = authorization[len(_SCHEME) :].strip() if authorization.lower().startswith(_SCHEME) else ""
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise RefusedError(Reason.NO_TOKEN, "this server needs its token: send the header Authorization: Bearer TOKEN")

    @property
    def is_ready(self) -> bool:
        """True if requests are answered now."""
        return not self.gate.is_ending and self.is_live

    @property
    def is_live(self) -> bool:
        """False if a network can answer nothing any more: only a new process helps."""
        return all(network.broken is None for network in self.networks.values())

    def network(self, name: str, version: str) -> ServedNetwork:
        """The network of this name; an empty version is the only one. Raises RefusedError, with what there is, for another."""
        if name not in self.networks:
            raise RefusedError(Reason.NOT_FOUND, f"no network {name!r} is served; there are {', '.join(self.networks)}")
        if version not in ("", VERSION):
            raise RefusedError(Reason.NOT_FOUND, f"{name} has version {VERSION}, not {version!r}")
        return self.networks[name]

    async def answer(self, request: Request, gone: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Reply:
        """The reply to a request. Its pictures are left out if `gone()` ends, as the client is gone, or this call is cancelled.

        Raises RefusedError.
        """
        network, began = self.network(request.model, request.version), time.perf_counter()
        work, count = network.accept(request)
        self.gate.accepted += 1
        answer = asyncio.wrap_future(work.future)
        try:
            await self._wait(answer, gone)
            reply = network.reply(request, answer.result(), count)
            self.gate.answered += 1
        except asyncio.CancelledError:
            if not self.gate.is_over:
                self.gate.gone += 1
            raise
        except Exception as error:
            is_gone = isinstance(error, RefusedError) and error.reason is Reason.GONE
            self.gate.gone += is_gone
            self.gate.answered += not is_gone
            if isinstance(error, BulkinferError) and not isinstance(error, RefusedError):
                raise RefusedError(Reason.FAILED, f"{network.name} has failed: {error}") from error
            raise
        finally:
            work.future.cancel()
            answer.cancel()
            network.done(count)
        self.metrics.seconds.labels(network.name).observe(time.perf_counter() - began)
        self.metrics.pictures.labels(network.name).inc(count)
        return reply

    async def _wait(self, answer: asyncio.Future[Any], gone: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Until the answer is there. Raises RefusedError if the client has gone before, or it takes too long."""
        waiting = {answer}
        if gone is not None:
            waiting.add(asyncio.ensure_future(gone()))
        try:
            done, _ = await asyncio.wait(waiting, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for other in waiting - {answer}:
                other.cancel()
        if answer not in done and done:
            raise RefusedError(Reason.GONE, "the client has closed the connection")
        if answer not in done:
            raise RefusedError(Reason.LATE, f"there is no answer after {self.timeout_s:g} s (--timeout_s)")

    def count(self, model: str, protocol: str, status: int) -> None:
        """A request for answers has ended with this HTTP status."""
        shown = model if model in self.networks else ""  # names come from clients, who could make any number of them
        self.metrics.requests.labels(shown, protocol, str(status)).inc()

    def refusal_of(self, error: BaseException) -> RefusedError:
        """The refusal that a client gets for an error; a fault of bulkinfer is logged."""
        if isinstance(error, RefusedError):
            return error
        for line in "".join(traceback.format_exception(error)).splitlines():
            log.error(line)
        return RefusedError(Reason.FAILED, "a fault of the server, which its log describes")
