"""GRPCInferenceService on the event loop of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from typing import Any

import grpc
import grpc.aio

from bulkinfer import __version__
from bulkinfer.errors import UsageError
from bulkinfer.serve.messages import VERSION
from bulkinfer.serve.network import PLATFORM
from bulkinfer.serve.refusals import Reason, RefusedError
from bulkinfer.serve.rpc.schema import SERVICE, message
from bulkinfer.serve.rpc.tensors import parse_request, reply_message
from bulkinfer.serve.service import NAME, Service

_ROOM_BYTES = 65_536  # of a message, for what is not tensors
_NOT_COMPRESSED = 1  # the first bit: the algorithm that leaves a message as it is
_OPEN_CALLS = 1000  # at once; more are refused
_NO_PINGS_S = 10  # clients may not ask for signs of life more often

Method = Callable[[Any], Awaitable[Any]]


def open_grpc(service: Service, address: str, tls: tuple[bytes, bytes] | None) -> tuple[grpc.aio.Server, int]:
    """The server, and the port that it will listen on at `address` (HOST:PORT); `tls` is key and certificates (PEM).

    Raises UsageError if it cannot listen there.
    """
    options = [
        ("grpc.max_receive_message_length", service.gate.max_request_bytes + _ROOM_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.compression_enabled_algorithms_bitset", _NOT_COMPRESSED),  # the limit does not hold for what is unpacked
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000 * _NO_PINGS_S),
        ("grpc.server_handshake_timeout_ms", int(1000 * service.timeout_s)),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_OPEN_CALLS)
    server.add_generic_rpc_handlers((_handlers(service),))
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
    except RuntimeError:
        port = 0
    if not port:
        raise UsageError(f"--grpc_port: cannot listen on {address} for gRPC: give another --grpc_port, or 0 for a free one")
    return server, port


def _handlers(service: Service) -> grpc.GenericRpcHandler:
    """One handler for each method. A request is read as a stream of one message, so that it has a time limit."""
    calls, methods = _Calls(service), {}
    for name, (answer, is_open) in calls.methods().items():
        methods[name] = grpc.stream_unary_rpc_method_handler(
            calls.answering(answer, is_open),
            request_deserializer=message(f"{name}Request").FromString,
            response_serializer=lambda sent: sent.SerializeToString(),
        )
    return grpc.method_handlers_generic_handler(SERVICE, methods)


class _Calls:
    def __init__(self, service: Service) -> None:
        self._service = service

    def methods(self) -> dict[str, tuple[Method, bool]]:
        """Each method, and whether it is open to clients without the token."""
        return {
            "ServerLive": (self._live, True),
            "ServerReady": (self._ready, True),
            "ModelReady": (self._model_ready, False),
            "ServerMetadata": (self._server, False),
            "ModelMetadata": (self._model, False),
            "ModelInfer": (self._infer, False),
        }

    def answering(self, answer: Method, is_open: bool) -> Callable[[AsyncIterator[Any], Any], Awaitable[Any]]:
        """The handler of a method: checks the token, reads the request, and ends the call with the status of a refusal."""
        service = self._service

        async def handle(requests: AsyncIterator[Any], context: Any) -> Any:
            try:
                if not is_open:
                    headers = dict(context.invocation_metadata() or ())
                    service.check_token(str(headers.get("authorization", "")))
                return await answer(await self._first(requests))
            except Exception as error:  # the client gets it; a fault of bulkinfer is logged
                refusal = service.refusal_of(error)
            await context.abort(getattr(grpc.StatusCode, refusal.reason.grpc_status), str(refusal))
            return None

        return handle

    async def _first(self, requests: AsyncIterator[Any]) -> Any:
        """The one message of a call. Raises RefusedError if it does not come in time."""
        try:
            async with asyncio.timeout(self._service.timeout_s):
                async for asked in requests:
                    return asked
        except TimeoutError:
            pass
        within = f"within {self._service.timeout_s:g} s (--timeout_s)"
        raise RefusedError(Reason.SLOW, f"the request did not come {within}")

    async def _live(self, _asked: Any) -> Any:
        return message("ServerLiveResponse")(live=self._service.is_live)

    async def _ready(self, _asked: Any) -> Any:
        return message("ServerReadyResponse")(ready=self._service.is_ready)

    async def _server(self, _asked: Any) -> Any:
        return message("ServerMetadataResponse")(name=NAME, version=__version__)

    async def _model_ready(self, asked: Any) -> Any:
        """Over gRPC, unlike HTTP, a network that is not served is one that is not ready: clients ask for a yes or no."""
        try:
            network = self._service.network(asked.name, asked.version)
        except RefusedError:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=network.broken is None and self._service.is_ready)

    async def _model(self, asked: Any) -> Any:
        network = self._service.network(asked.name, asked.version)
        sent = message("ModelMetadataResponse")(name=network.name, versions=[VERSION], platform=PLATFORM)
        for facts in network.inputs():
            sent.inputs.add(**asdict(facts))
        for facts in network.outputs.facts():
            sent.outputs.add(**asdict(facts))
        return sent

    async def _infer(self, asked: Any) -> Any:
        service, status = self._service, Reason.GONE.http_status
        try:
            async with service.gate.entered():
                with service.gate.room() as room:
                    room.hold(asked.ByteSize())
                    reply = await service.answer(parse_request(asked))
                status = 200
            return reply_message(reply, raw=bool(asked.raw_input_contents))
        except Exception as error:
            refusal = service.refusal_of(error)
            status = refusal.reason.http_status
            raise refusal from error
        finally:
            service.count(asked.model_name, "grpc", status)
