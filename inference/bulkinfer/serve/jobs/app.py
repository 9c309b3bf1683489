"""The paths of jobs over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from bulkinfer.serve.jobs.job_service import ROW_FORMATS, JobService
from bulkinfer.serve.jobs.submission import MOST_BYTES
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError
from bulkinfer.serve.rest.app import json_answer, refused
from bulkinfer.serve.rest.body import body_of
from bulkinfer.serve.service import Service

_PAGE = Path(__file__).with_name("page")
_PAGE_FILES = {
    "/": ("jobs.html", "text/html"),
    "/jobs.js": ("jobs.js", "text/javascript"),
    "/jobs.css": ("jobs.css", "text/css"),
}
# The page loads its own two files and asks this service, nothing else. A report has styles and pictures in it, and no script.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_KEY = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
_MOST_LISTED = 1000

Endpoint = Callable[[Request], Awaitable[Response]]
UserEndpoint = Callable[[Request, str], Awaitable[Response]]


def job_routes(jobs: JobService, service: Service) -> list[Route]:
    """The routes of jobs, beside those of the service."""
    paths = _Paths(jobs, service)
    job = "/jobs/{id}"
    return [
        *(Route(path, _page(service, *file)) for path, file in _PAGE_FILES.items()),
        Route("/jobs", paths.for_user(paths.jobs)),
        Route("/jobs", paths.for_user(paths.submit), methods=["POST"]),
        Route(job, paths.for_user(paths.job)),
        Route(f"{job}/events", paths.for_user(paths.events)),
        Route(f"{job}/cancel", paths.for_user(paths.cancel), methods=["POST"]),
        Route(f"{job}/rows", paths.for_user(paths.rows)),
        Route(f"{job}/parts", paths.for_user(paths.parts)),
        Route(f"{job}/parts/{{name}}", paths.for_user(paths.part)),
        Route(f"{job}/report", paths.for_user(paths.report)),
        Route(f"{job}/report", paths.for_user(paths.report_address), methods=["POST"]),
        Route("/reports/{ticket}", _answered(service, paths.report_by_ticket)),
    ]


def _answered(service: Service, endpoint: Endpoint) -> Endpoint:
    """The endpoint; what it raises becomes the answer."""

    async def answer(request: Request) -> Response:
        try:
            if service.gate.is_ending:
                raise RefusedError(Reason.ENDING, "the server is shutting down: send it again later")
            response = await endpoint(request)
        except Exception as error:  # the client gets it; a fault of bulkinfer is logged
            response = refused(service.refusal_of(error))
        for name, value in _ALWAYS.items():
            response.headers.setdefault(name, value)
        return response

    return answer


def _page(service: Service, name: str, media_type: str) -> Endpoint:
    async def page(_request: Request) -> Response:
        return FileResponse(_PAGE / name, media_type=media_type, headers={"Content-Security-Policy": _PAGE_POLICY})

    return _answered(service, page)


class _Paths:
    def __init__(self, jobs: JobService, service: Service) -> None:
        self._jobs, self._service = jobs, service

    def for_user(self, endpoint: UserEndpoint) -> Endpoint:
        """The endpoint for the user whose token the request has."""

        async def of_user(request: Request) -> Response:
            return await endpoint(request, self._jobs.user(request.headers.get("authorization", "")))

        return _answered(self._service, of_user)

    async def submit(self, request: Request, user: str) -> Response:
        key = request.headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise InvalidError("Idempotency-Key must be 1 to 200 printable ASCII characters without blanks")
        async with body_of(request.receive, request.headers, self._service.gate, self._service.timeout_s) as body:
            if len(body) > MOST_BYTES:
                raise RefusedError(Reason.TOO_LARGE, f"a job has at most {MOST_BYTES} bytes, this has {len(body)}")
            is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
            job, is_new = await self._jobs.submit(user, bytes(body), is_json, key)
        return json_answer(job, 201 if is_new else 200, {"Location": f"/jobs/{job['id']}"})

    async def jobs(self, request: Request, user: str) -> Response:
        text = request.query_params.get("limit", "100")
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= _MOST_LISTED):
            raise InvalidError(f"limit is {text!r}: give a number from 1 to {_MOST_LISTED}")
        return json_answer({"user": user, "jobs": await self._jobs.jobs(user, int(text))})

    async def job(self, request: Request, user: str) -> Response:
        return json_answer(await self._jobs.job(user, request.path_params["id"]))

    async def cancel(self, request: Request, user: str) -> Response:
        job = await self._jobs.cancel(user, request.path_params["id"])
        return json_answer(job, 200 if job["has_ended"] else 202)

    async def events(self, request: Request, user: str) -> Response:
        changes = await self._jobs.watch(user, request.path_params["id"])
        return StreamingResponse(_events(changes), media_type="text/event-stream")

    async def rows(self, request: Request, user: str) -> Response:
        form = request.query_params.get("format", "jsonl")
        if form not in ROW_FORMATS:
            raise InvalidError(f"format is {form!r}: legal are {', '.join(ROW_FORMATS)}; parts gives the Parquet files")
        return StreamingResponse(await self._jobs.rows(user, request.path_params["id"], form), media_type=ROW_FORMATS[form])

    async def parts(self, request: Request, user: str) -> Response:
        return json_answer({"parts": await self._jobs.parts(user, request.path_params["id"])})

    async def part(self, request: Request, user: str) -> Response:
        path = await self._jobs.part(user, request.path_params["id"], request.path_params["name"])
        return FileResponse(path, media_type="application/vnd.apache.parquet", filename=path.name)

    async def report(self, request: Request, user: str) -> Response:
        return _report(await self._jobs.report(user, request.path_params["id"]))

    async def report_address(self, request: Request, user: str) -> Response:
        ticket = await self._jobs.report_ticket(user, request.path_params["id"])
        return json_answer({"address": f"/reports/{ticket}"}, 201)

    async def report_by_ticket(self, request: Request) -> Response:
        return _report(await self._jobs.report_by(request.path_params["ticket"]))


def _report(pieces: AsyncGenerator[bytes, None]) -> Response:
    return StreamingResponse(pieces, media_type="text/html", headers={"Content-Security-Policy": _REPORT_POLICY})


async def _events(changes: AsyncGenerator[dict[str, Any] | None, None]) -> AsyncGenerator[bytes, None]:
    """Server-sent events: `job` with the job as JSON, whenever it has changed."""
    async for job in changes:
        yield b": nothing new\n\n" if job is None else b"event: job\ndata: " + orjson.dumps(job) + b"\n\n"
