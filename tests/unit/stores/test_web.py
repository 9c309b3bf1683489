"""web.py: addresses are asked for as they are written, faults that pass are tried again, and others cost one object."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from bulkinfer.errors import AbsentObjectError, ObjectError, UsageError
from bulkinfer.stores.web import Web

from tests.http_server import Site, serving

BODY = bytes(range(256)) * 20
LIMIT = 1 << 20


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(Site(BODY)) as found:
        yield found


def get(site: Site, name: str = "a.jpg", most_bytes: int = LIMIT) -> bytes:
    return Web().get(site.url(name), most_bytes, lambda _size: None)


@pytest.mark.parametrize(
    "script", [["whole"], ["unsized"], [503, "whole"], ["cut", "whole"], ["silent", "whole"], [429, 500, "whole"]]
)
def test_an_object_comes_whole(site: Site, script: list[str | int]) -> None:
    site.script = script
    assert get(site) == BODY


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("a b.jpg", "/a%20b.jpg"),
        ("a%20b%2F+.jpg?w=1&h=%C3%A9", "/a%20b%2F+.jpg?w=1&h=%C3%A9"),
        ("a//b;c=1.jpg", "/a//b;c=1.jpg"),
        ("é.jpg", "/%C3%A9.jpg"),
    ],
)
def test_an_address_is_asked_for_as_it_is_written(site: Site, written: str, asked: str) -> None:
    get(site, written)
    assert [path for path, _, _ in site.requests] == [asked]


def test_a_redirect_is_followed(site: Site) -> None:
    site.script = ["/b.jpg", "whole"]
    assert get(site) == BODY
    assert [path for path, _, _ in site.requests] == ["/a.jpg", "/b.jpg"]


def test_a_redirect_may_lead_to_another_server_and_not_in_circles(site: Site) -> None:
    with serving(Site(BODY)) as other:
        site.script = [other.url("b.jpg")]
        assert get(site) == BODY
    site.script = ["/a.jpg"]
    with pytest.raises(ObjectError, match="redirects again and again"):
        get(site)


@pytest.mark.parametrize("step", ["whole", "unsized"])
def test_a_large_object_is_not_read(site: Site, step: str) -> None:
    site.script = [step]
    with pytest.raises(ObjectError, match=r"too large: \d+ bytes or more, limit 5119"):
        get(site, most_bytes=len(BODY) - 1)
    assert get(site, most_bytes=len(BODY)) == BODY


@pytest.mark.parametrize(
    ("status", "words"), [(403, "the server answered 403"), (500, "goes on answering"), (404, "not found")]
)
def test_an_error_that_stays(site: Site, status: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.script = [status]
    web = Web()
    web._retries = web._retries.new(backoff_factor=0, backoff_jitter=0)
    with pytest.raises(AbsentObjectError if status == 404 else ObjectError, match=words):
        web.get(site.url("a.jpg"), LIMIT, lambda _size: None)


@pytest.mark.parametrize(
    ("address", "words"),
    [("http://127.0.0.1:1/a.jpg", "cannot be reached"), ("http://no.such.host.invalid/a.jpg", "has no address")],
)
def test_a_server_that_is_not_there(address: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    web = Web()
    web._retries = web._retries.new(backoff_factor=0, backoff_jitter=0)
    with pytest.raises(ObjectError, match=words):
        web.get(address, LIMIT, lambda _size: None)


def test_parts_need_a_server_that_gives_them(site: Site) -> None:
    site.script = ["other"]  # bytes 0-9 whatever is asked for
    data, found = Web().get_range(site.url("a.tar"), 0, 10)
    assert (data, found.size_bytes) == (BODY[:10], len(BODY))
    assert Web().find(site.url("a.tar")).size_bytes == len(BODY)
    with pytest.raises(ObjectError, match="gives other parts than it is asked for"):
        Web().get_range(site.url("a.tar"), 5, 5)
    site.script = ["whole"]
    with pytest.raises(ObjectError, match="gives whole files only"):
        Web().get_range(site.url("a.tar"), 5, 5)


@pytest.mark.parametrize(
    "ask", [lambda web, url: list(web.list(url)), lambda web, url: web.put(url, b""), lambda web, url: web.delete(url)]
)
def test_the_web_is_not_listed_or_written_to(site: Site, ask: object) -> None:
    with pytest.raises(UsageError, match=re.escape(site.url("a.jpg"))):
        ask(Web(), site.url("a.jpg"))  # type: ignore[operator]
