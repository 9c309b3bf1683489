"""The paths of the protocol over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ExceptionHandler, Receive

from bulkinfer import __version__
from bulkinfer.serve.messages import VERSION
from bulkinfer.serve.network import PLATFORM, ServedNetwork
from bulkinfer.serve.refusals import Reason, RefusedError
from bulkinfer.serve.rest.body import body_of
from bulkinfer.serve.rest.json_tensors import HEADER_LENGTH, parse_request, reply_bytes
from bulkinfer.serve.service import NAME, REST_EXTENSIONS, Service

_JSON, _BINARY = "application/json", "application/octet-stream"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_AGAIN_S = "1"  # after which a client that was refused for the moment may send its request again
_CLOSING = {Reason.SLOW, Reason.TOO_LARGE, Reason.ENCODED, Reason.ENDING}  # the rest of the request may still be under way

Endpoint = Callable[[HttpRequest], Awaitable[Response]]


def rest_app(service: Service, others: Sequence[Route] = ()) -> Starlette:
    """The application of one server, with `others` beside the paths of the protocol."""
    paths = _Paths(service)
    model = "/v2/models/{name}"
    routes = [
        Route("/v2/health/live", paths.live),
        Route("/v2/health/ready", paths.ready),
        Route("/v2", _guarded(service, paths.server)),
        Route("/metrics", _guarded(service, paths.metrics)),
    ]
    for path in (model, f"{model}/versions/{{version}}"):
        routes += [
            Route(path, _guarded(service, paths.model)),
            Route(f"{path}/ready", _guarded(service, paths.model_ready)),
            Route(f"{path}/infer", _guarded(service, paths.infer), methods=["POST"]),
        ]
    routes += others
    handlers: dict[Any, ExceptionHandler] = {404: _no_path, 405: _no_path}
    return Starlette(routes=routes, exception_handlers=handlers)


def _guarded(service: Service, endpoint: Endpoint) -> Endpoint:
    """The endpoint behind the token; what it raises becomes the answer."""

    async def answer(request: HttpRequest) -> Response:
        try:
            service.check_token(request.headers.get("authorization", ""))
            return await endpoint(request)
        except Exception as error:  # the client gets it; a fault of bulkinfer is logged
            return refused(service.refusal_of(error))

    return answer


def refused(refusal: RefusedError) -> Response:
    """The answer to a request that is refused."""
    headers = {}
    if refusal.reason in (Reason.BUSY, Reason.ENDING):
        headers["Retry-After"] = _AGAIN_S
    if refusal.reason is Reason.NO_TOKEN:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.reason in _CLOSING:
        headers["Connection"] = "close"
    return json_answer({"error": str(refusal)}, refusal.reason.http_status, headers)


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(orjson.dumps(content), status, headers, _JSON)


async def _no_path(request: HttpRequest, _error: Exception) -> Response:
    text = f"{request.method} {request.url.path} is not served here"
    return json_answer({"error": text}, Reason.NOT_FOUND.http_status)


class _Paths:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def live(self, _request: HttpRequest) -> Response:
        return json_answer({"live": self._service.is_live}, 200 if self._service.is_live else 503)

    async def ready(self, _request: HttpRequest) -> Response:
        return json_answer({"ready": self._service.is_ready}, 200 if self._service.is_ready else 503)

    async def server(self, _request: HttpRequest) -> Response:
        return json_answer({"name": NAME, "version": __version__, "extensions": list(REST_EXTENSIONS)})

    async def metrics(self, _request: HttpRequest) -> Response:
        return Response(self._service.metrics.text(), media_type=_TEXT)

    async def model(self, request: HttpRequest) -> Response:
        network = self._network(request)
        tensors = {"inputs": network.inputs(), "outputs": network.outputs.facts()}
        shown = {kind: [asdict(facts) for facts in found] for kind, found in tensors.items()}
        about = {"name": network.name, "versions": [VERSION], "platform": PLATFORM}
        return json_answer({**about, **shown, "parameters": network.facts()})

    async def model_ready(self, request: HttpRequest) -> Response:
        network = self._network(request)
        is_ready = network.broken is None and self._service.is_ready
        return json_answer({"name": network.name, "ready": is_ready}, 200 if is_ready else 503)

    async def infer(self, request: HttpRequest) -> Response:
        service, name, status = self._service, request.path_params["name"], Reason.GONE.http_status
        try:
            async with service.gate.entered():
                reply = await self._reply(request, name)
                status = reply.status_code
                return reply
        except Exception as error:
            refusal = service.refusal_of(error)
            status = refusal.reason.http_status
            raise refusal from error
        finally:
            service.count(name, "rest", status)

    async def _reply(self, request: HttpRequest, name: str) -> Response:
        service, headers = self._service, request.headers
        async with body_of(request.receive, headers, service.gate, service.timeout_s) as body:
            version = request.path_params.get("version", "")
            asked, binary = parse_request(name, version, body, headers.get(HEADER_LENGTH, ""))
            reply = await service.answer(asked, gone=lambda: _gone(request.receive))
        content, json_size = reply_bytes(reply, binary)
        if not json_size:
            return Response(content, media_type=_JSON)
        return Response(content, headers={HEADER_LENGTH: str(json_size)}, media_type=_BINARY)

    def _network(self, request: HttpRequest) -> ServedNetwork:
        return self._service.network(request.path_params["name"], request.path_params.get("version", ""))


async def _gone(receive: Receive) -> None:
    """Ends when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)
