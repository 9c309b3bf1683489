"""A folder of jobs for a test: its jobs.toml, a network, pictures; and what a user asks of the service."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.serving import TIMEOUT_S, Server

USERS = ("ann", "bob")
NETWORK = {"model_name": "tiny", "batch_size": 4, "device": "cpu", "precision": "fp32"}
ENDED = ("done", "failed", "cancelled")


def write_home(home: Path, *, photos: int = 20, **settings: object) -> Path:
    """The network tiny in models/, pictures in photos/, and queue/jobs.toml, which allows them, and many/, to ann and bob."""
    write_tiny_model(home / "models", batch_sizes=(4,))
    write_photos(home / "photos", photos)
    (home / "queue").mkdir()
    (home / "many").mkdir()
    lines = [
        'data = ["../photos", "../many"]',
        'models = "../models"',
        *(f"{name} = {value}" for name, value in settings.items()),
        "[users]",
    ]
    lines += [f'{user} = "{hashlib.sha256(token(user).encode()).hexdigest()}"' for user in USERS]
    (home / "queue" / "jobs.toml").write_text("\n".join(lines))
    return home


def token(user: str) -> str:
    """What a user sends."""
    return f"token-of-{user}"


def ask(server: Server, user: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and content of an answer."""
    status, content, _ = server.ask(method, path, body, Authorization=f"Bearer {token(user)}", **headers)
    return status, content


def submit(server: Server, user: str, options: Mapping[str, object], **headers: str) -> tuple[int, Any]:
    """The same of a job that is submitted."""
    return ask(server, user, "POST", "/jobs", json.dumps(options).encode(), Content_Type="application/json", **headers)


def events(server: Server, user: str, job_id: str) -> Iterator[dict[str, Any]]:
    """The job, whenever it has changed, until the stream ends."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest, timeout=TIMEOUT_S)
    connection.request("GET", f"/jobs/{job_id}/events", headers={"Authorization": f"Bearer {token(user)}"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    try:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        connection.close()


def ended(server: Server, user: str, job_id: str) -> dict[str, Any]:
    """The job at its end."""
    *_, last = events(server, user, job_id)
    return last


def launchers(server: Server) -> list[int]:
    """The processes of infer_launch that the service has started and that run."""
    found = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return [int(pid) for pid in found if b"infer_launch" in _command_line(pid)]


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for_part(results: Path) -> None:
    """Until some rows of a job are published."""
    deadline = time.monotonic() + TIMEOUT_S
    while not any(results.glob("part-*")):
        assert time.monotonic() < deadline, "no part was published"
        time.sleep(0.01)


def wait_for_launcher(server: Server) -> int:
    """The launcher that the service has started, once it has."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := launchers(server)):
        assert time.monotonic() < deadline, "no launcher was started"
        time.sleep(0.01)
    return found[0]
