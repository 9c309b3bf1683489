"""A server on the loopback interface that misbehaves in prepared ways."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ETAG = '"one"'


@dataclass
class Site:
    """What the server gives. `script` holds one behaviour per request, the last repeats:

    "whole", "cut" (half of what was promised), "unsized" (no Content-Length), "stalled" (half, and the rest never),
    "silent" (connection closed without an answer), "other" (a range nobody asked for), a status number, or a URL to
    redirect to. `bodies` gives paths a body of their own; then others are not found. Ranges are served when `etag` is set
    and If-Range names it. `requests` collects (path, Range header, bytes sent), `authorizations` the header of that name.
    """

    body: bytes = b""
    script: list[str | int] = field(default_factory=lambda: ["whole"])
    etag: str = ETAG
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)  # ends what stalls

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    @property
    def sent_bytes(self) -> int:
        return sum(sent for _, _, sent in self.requests)


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site = self.site
        with site.lock:
            step = site.script.pop(0) if len(site.script) > 1 else site.script[0]
        if isinstance(step, int):
            self._answer(step, b"", {})
        elif step == "silent":
            self.close_connection = True
        elif step.startswith(("http", "/", "ftp")):
            self._answer(302, b"", {"Location": step})
        elif site.bodies and self.path not in site.bodies:
            self._answer(404, b"", {})
        else:
            self._give(site.bodies.get(self.path, site.body), step)
        if step == "stalled":
            self.wfile.flush()
            site.over.wait()

    def _give(self, body: bytes, step: str) -> None:
        asked = self.headers.get("Range", "")
        if step == "other":
            self._answer(206, body[:10], {"Content-Range": f"bytes 0-9/{len(body)}"})
        elif asked and self.site.etag and self.headers.get("If-Range") == self.site.etag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            content_range = f"bytes {start}-{len(body) - 1}/{len(body)}"
            self._answer(206, body[start:], {"Content-Range": content_range}, cut=step in ("cut", "stalled"))
        else:
            self._answer(200, body, {}, cut=step in ("cut", "stalled"), sized=step != "unsized")

    def _answer(self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False, sized: bool = True) -> None:
        sent = body[: len(body) // 2] if cut else body
        with self.site.lock:
            self.site.authorizations.append(self.headers.get("Authorization", ""))
            self.site.requests.append((self.path, self.headers.get("Range", ""), len(sent)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.site.etag:
            self.send_header("ETag", self.site.etag)
        if sized:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *words: object) -> None:
        """Nothing on stderr."""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve `site` in a thread while the block runs; sets its port."""
    handler = type("Handler", (_Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            site.over.set()
            server.shutdown()
            thread.join()
