"""download.py: transfers that are interrupted, redirected, resumed and refused, against a server on the loopback interface."""

from __future__ import annotations

import inspect
import io
import logging
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from unittest.mock import Mock

import pytest
from bulkinfer.errors import DownloadError
from bulkinfer.files.download import MOST_BYTES, TooLargeError, _Redirects, fetch

from tests.http_server import Site, serving
from tests.logged import logged

BODY = bytes(range(256)) * 500


def fetched(site: Site, tmp_path: Path) -> tuple[bytes, list[str]]:
    said: list[str] = []
    with serving(site):
        logged(said, fetch, site.url("file.pth"), tmp_path / "file", pause_s=0.01)
    return (tmp_path / "file").read_bytes(), said


def refused(site: Site, tmp_path: Path) -> str:
    with serving(site), pytest.raises(DownloadError) as error:
        fetch(site.url("file.pth"), tmp_path / "file", pause_s=0.01)
    return str(error.value)


@pytest.mark.parametrize(
    "script", [["whole"], ["unsized"], ["cut", "whole"], ["silent", "cut", "cut", "whole"], [503, "whole"]]
)
def test_b65_arrives_whole(script: list[str | int], tmp_path: Path) -> None:
    body, said = fetched(Site(BODY, list(script)), tmp_path)
    assert body == BODY
    assert len(said) == len(script) - 1, "a line for every new attempt"


def test_b65_a_cut_transfer_is_resumed_where_it_ended(tmp_path: Path) -> None:
    site = Site(BODY, ["cut", "whole"])
    body, said = fetched(site, tmp_path)
    assert body == BODY
    assert [asked for _, asked, _ in site.requests] == ["", f"bytes={len(BODY) // 2}-"]
    assert site.sent_bytes == len(BODY)
    assert "64,000 of 128,000 bytes" in said[0]


def test_without_proof_of_the_version_it_begins_again(tmp_path: Path) -> None:
    site = Site(BODY, ["cut", "whole"], etag="")
    assert fetched(site, tmp_path)[0] == BODY
    assert site.sent_bytes == len(BODY) + len(BODY) // 2


def test_a_file_that_changed_meanwhile_is_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(BODY, ["cut", "whole"])

    def change(_: str) -> None:
        site.body, site.etag = BODY[::-1], '"two"'

    monkeypatch.setattr(logging.getLogger("bulkinfer"), "info", change)
    with serving(site):
        fetch(site.url("file.pth"), tmp_path / "file", pause_s=0.01)
    assert (tmp_path / "file").read_bytes() == BODY[::-1]


def test_another_range_than_asked_for_is_not_appended(tmp_path: Path) -> None:
    assert fetched(Site(BODY, ["cut", "other", "whole"]), tmp_path)[0] == BODY


def test_a_range_beyond_the_file_begins_again(tmp_path: Path) -> None:
    assert fetched(Site(BODY, ["cut", 416, "whole"]), tmp_path)[0] == BODY


def test_b65_gives_up_after_five_attempts(tmp_path: Path) -> None:
    site = Site(BODY, ["cut"], etag="")
    assert "attempt 5 of 5" in refused(site, tmp_path)
    assert len(site.requests) == 5


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_final_answer_is_not_asked_for_twice(status: int, tmp_path: Path) -> None:
    site = Site(BODY, [status])
    assert str(status) in refused(site, tmp_path)
    assert len(site.requests) == 1


def test_redirects_are_followed(tmp_path: Path) -> None:
    site = Site(BODY, ["/elsewhere", "whole"])
    assert fetched(site, tmp_path)[0] == BODY
    assert [path for path, _, _ in site.requests] == ["/file.pth", "/elsewhere"]


def test_a_redirect_away_from_http_is_refused(tmp_path: Path) -> None:
    assert "not http" in refused(Site(BODY, ["ftp://127.0.0.1/file.pth"]), tmp_path)


def test_redirects_in_a_circle_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    circle = urllib.error.HTTPError(
        "http://a", 302, "would lead to a loop.\nThe last 30x error message was:\nFound", Message(), None
    )
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", Mock(side_effect=circle))
    with pytest.raises(DownloadError) as error:
        fetch("http://a/file.pth", tmp_path / "file", pause_s=0.01)
    assert str(error.value).endswith("answered 302 would lead to a loop. The last 30x error message was: Found")


def test_redirects_may_gain_but_not_lose_encryption() -> None:
    def redirect(old: str, new: str) -> object:
        return _Redirects().redirect_request(urllib.request.Request(old), io.BytesIO(), 302, "Found", {}, new)

    assert isinstance(redirect("http://one.test/a", "https://two.test/b"), urllib.request.Request)
    with pytest.raises(DownloadError, match="from https to plain http"):
        redirect("https://one.test/a", "http://two.test/b")


@pytest.mark.parametrize(
    "url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "http://127.0.0.1:1/x", "http://a b/x", "http://[x"]
)
def test_unreachable_or_foreign_urls_are_one_sentence(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError) as error:
        fetch(url, tmp_path / "file")
    assert url in str(error.value)
    assert "\n" not in str(error.value)


def test_a_password_goes_to_its_own_host_only_and_is_shown_nowhere(tmp_path: Path) -> None:
    """RFC 7617: Basic and base64 of user:password, whose escapes are those of the address."""
    said: list[str] = []
    with serving(Site(BODY)) as elsewhere:
        site = Site(BODY, [503, elsewhere.url("other.pth")])
        with serving(site):
            logged(said, fetch, site.url("file.pth").replace("://", "://ann:s%40crt@"), tmp_path / "file", pause_s=0.01)
            site.script = [403]
            with pytest.raises(DownloadError) as error:
                logged(said, fetch, site.url("file.pth?token=s@crt").replace("://", "://ann:s%40crt@"), tmp_path / "other")
    assert (tmp_path / "file").read_bytes() == BODY
    assert site.authorizations == ["Basic YW5uOnNAY3J0"] * 3
    assert elsewhere.authorizations == [""]
    assert str(error.value) == f"{site.url('file.pth')}?...: the server answered 403 Forbidden"
    assert "crt" not in "".join(said)


def test_a_part_is_continued_by_another_process(tmp_path: Path) -> None:
    site = Site(BODY, ["cut", "silent"])
    with serving(site):
        with pytest.raises(DownloadError):
            fetch(site.url("a"), tmp_path / "file", pause_s=0.01, part_note=tmp_path / "note")
        half = (tmp_path / "file").stat().st_size
        assert half == len(BODY) // 2
        site.script = ["whole"]
        fetch(site.url("a"), tmp_path / "file", pause_s=0.01, part_note=tmp_path / "note")
    assert (tmp_path / "file").read_bytes() == BODY
    assert site.requests[-1] == ("/a", f"bytes={half - 1}-", len(BODY) - half + 1), "one byte is asked for again"


def test_a_whole_part_costs_one_byte(tmp_path: Path) -> None:
    site = Site(BODY)
    with serving(site):
        for _ in range(2):
            fetch(site.url("a"), tmp_path / "file", part_note=tmp_path / "note")
    assert (tmp_path / "file").read_bytes() == BODY
    assert site.requests[-1] == ("/a", f"bytes={len(BODY) - 1}-", 1)


@pytest.mark.parametrize("spoiled", ["changed", "without ETag", "other address", "note", "no note"])
def test_a_part_that_proves_nothing_is_begun_again(spoiled: str, tmp_path: Path) -> None:
    site = Site(BODY)
    with serving(site):
        fetch(site.url("a"), tmp_path / "file", part_note=tmp_path / "note")
        (tmp_path / "file").write_bytes(b"x" * 1000)
        address = "b" if spoiled == "other address" else "a"
        if spoiled == "changed":
            site.etag = '"two"'
        elif spoiled == "without ETag":
            site.etag = ""
        elif spoiled == "note":
            (tmp_path / "note").write_bytes(b'{"address_sh')
        elif spoiled == "no note":
            (tmp_path / "note").unlink()
        # each of these must not splice new bytes to the old ones
        fetch(site.url(address), tmp_path / "file", part_note=tmp_path / "note")
    assert (tmp_path / "file").read_bytes() == BODY


def test_an_address_that_gives_nothing_leaves_the_part_of_another(tmp_path: Path) -> None:
    site = Site(bodies={"/a": BODY})
    with serving(site):
        fetch(site.url("a"), tmp_path / "file", part_note=tmp_path / "note")
        with pytest.raises(DownloadError, match="answered 404"):
            fetch(site.url("b"), tmp_path / "file", part_note=tmp_path / "note")
        fetch(site.url("a"), tmp_path / "file", part_note=tmp_path / "note")
    assert (tmp_path / "file").read_bytes() == BODY
    assert site.requests[-1][2] == 1


@pytest.mark.parametrize("script", [["whole"], ["unsized"], ["cut", "whole"]])
def test_c55_a_file_larger_than_its_bound_is_given_up(script: list[str | int], tmp_path: Path) -> None:
    site = Site(BODY, list(script))
    with serving(site), pytest.raises(TooLargeError, match=r"gives .* bytes or more, and 127,999 are allowed"):
        fetch(site.url("file.pth"), tmp_path / "file", most_bytes=len(BODY) - 1, pause_s=0.01)
    assert (tmp_path / "file").stat().st_size == 0
    assert len(site.requests) == 1, "another attempt would not make it smaller"
    with serving(Site(BODY, list(script))) as site:
        fetch(site.url("file.pth"), tmp_path / "file", most_bytes=len(BODY), pause_s=0.01)
    assert (tmp_path / "file").read_bytes() == BODY


def test_c55_a_download_without_a_known_size_has_a_bound() -> None:
    assert inspect.signature(fetch).parameters["most_bytes"].default == MOST_BYTES
    assert 1 << 33 < MOST_BYTES < 1 << 35
