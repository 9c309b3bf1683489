"""bucket.py against a real S3 server: everything of the seam, and faults that pass."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from bulkinfer.errors import AbsentObjectError, ConflictError, ObjectError, StoreError, UsageError
from bulkinfer.stores import bucket as module
from bulkinfer.stores.bucket import Bucket
from bulkinfer.stores.objects import open_object
from bulkinfer.stores.store import Found, open_store

from tests.object_store import BUCKET, SECRET, Proxy, Server, proxy_before, reached_from_here, s3_server

LIMIT = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_before(server.url) as found, reached_from_here(server, found.url):
        yield found


def here() -> Bucket:
    store, _ = open_store(f"s3://{BUCKET}")
    assert isinstance(store, Bucket)
    return store


def test_an_object_is_read_whole_and_in_part(server: Server, proxy: Proxy) -> None:
    server.put("read/a b é%41+#?.jpg", bytes(range(200)))
    key, sizes = "read/a b é%41+#?.jpg", list[int]()
    assert here().get(key, LIMIT, sizes.append) == bytes(range(200))
    assert sizes == [200]
    data, found = here().get_range(key, 190, 20)
    assert data == bytes(range(190, 200))
    assert found == here().find(key) == Found(200, found.mtime_ns, found.tag)
    server.put(key, bytes(reversed(range(200))))  # within the same second, most likely
    assert here().find(key).mtime_ns != found.mtime_ns
    server.put(key, bytes(range(200)))
    with pytest.raises(ObjectError, match="too large: 200 bytes, limit 199"):
        here().get(key, 199, sizes.append)
    with pytest.raises(AbsentObjectError):
        here().get("read/none", LIMIT, sizes.append)
    with pytest.raises(ObjectError, match="empty part"):
        here().get("read//none", LIMIT, sizes.append)


def test_an_object_as_a_file(server: Server, proxy: Proxy) -> None:
    server.put("file", bytes(range(256)) * 40)
    with open_object(f"s3://{BUCKET}/file") as file:
        assert file.seek(0, 2) == 256 * 40
        file.seek(250)
        assert file.read(10) == bytes([*range(250, 256), *range(4)])
        assert file.tell() == 260
        file.seek(-3, 2)
        assert file.read() == b"\xfd\xfe\xff"
    assert len([line for line in proxy.requests if b"GET" in line]) == 2  # one block, and nothing twice but what a seek left


def test_a_listing_has_what_is_below_the_prefix(server: Server, proxy: Proxy) -> None:
    for key in ("list/b.jpg", "list/a/c.jpg", "listed.jpg", "list/Z.jpg"):
        server.put(key, b"12345")
    listed = [each for page in here().list("list") for each in page]
    assert [(each.key, each.size_bytes) for each in listed] == [("list/Z.jpg", 5), ("list/a/c.jpg", 5), ("list/b.jpg", 5)]


def test_a_public_bucket_by_the_client_of_google(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto's server speaks the XML interface, which both have, but for signatures and conditional puts."""
    server.put("public/a b.jpg", b"12345")
    server.client.put_object_acl(Bucket=BUCKET, Key="public/a b.jpg", ACL="public-read")
    server.client.put_bucket_acl(Bucket=BUCKET, ACL="public-read")
    with reached_from_here(server):
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
        store = Bucket("gs", BUCKET)
        assert [(each.key, each.size_bytes) for page in store.list("public") for each in page] == [("public/a b.jpg", 5)]
        assert store.get("public/a b.jpg", LIMIT, lambda _size: None) == b"12345"
        assert store.get_range("public/a b.jpg", 3, 9)[0] == b"45"
        assert store.find("public/a b.jpg").size_bytes == 5
        with pytest.raises(StoreError, match="the bucket gs://none does not exist"):
            Bucket("gs", "none").get("x", LIMIT, lambda _size: None)


def test_a_conditional_put(proxy: Proxy) -> None:
    tag = here().put("lease", b"1", only_new=True)
    with pytest.raises(ConflictError):
        here().put("lease", b"2", only_new=True)
    second = here().put("lease", b"2", instead_of=tag)
    with pytest.raises(ConflictError):
        here().put("lease", b"3", instead_of=tag)
    assert here().find("lease").tag == second
    here().put("lease", b"4")
    assert here().get("lease", LIMIT, lambda _size: None) == b"4"
    here().delete("lease")
    here().delete("lease")
    with pytest.raises(AbsentObjectError):
        here().find("lease")


def test_errors_that_pass_are_tried_again(server: Server, proxy: Proxy) -> None:
    server.put("passing", bytes(100_000))
    server.put("small", b"x")
    for fault in ("503", "reset", "cut"):
        begun = len(proxy.requests)
        proxy.fault = lambda number, _request, begun=begun, fault=fault: fault if number in (begun, begun + 2) else ""
        assert [each.key for page in here().list("") for each in page if each.key == "small"] == ["small"]
        assert here().get_range("small", 0, 5)[0] == b"x"
        begun = len(proxy.requests)
        proxy.fault = lambda number, _request, begun=begun, fault=fault: fault if number < begun + 2 else ""
        assert here().get("passing", 1 << 20, lambda _size: None) == bytes(100_000)
        assert len(proxy.requests) == begun + 3


def test_a_store_that_never_answered_is_soon_given_up(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_S", 0.5)
    proxy.fault = lambda _number, _request: "reset"
    with pytest.raises(StoreError) as caught:
        here().find("x")
    after = f"{len(proxy.requests)} tries" if len(proxy.requests) > 1 else "one try"  # on a machine that is busy
    assert str(caught.value).startswith(f"s3://{BUCKET} ended the connection after {after}: check the network")


def test_a_store_that_is_busy_has_answered(server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("busy", b"1")
    monkeypatch.setattr(module, "_FIRST_S", 0.1)
    begun = time.monotonic()
    proxy.fault = lambda _number, _request: "503" if time.monotonic() < begun + 0.5 else ""
    assert here().find("busy").size_bytes == 1
    monkeypatch.setattr(module, "_LATER_S", 0.1)
    proxy.fault = lambda _number, _request: "503"
    reached_again = Bucket("s3", BUCKET)
    with pytest.raises(StoreError, match=rf"s3://{BUCKET} answered 503 after .*: wait until it recovers"):
        reached_again.find("x")


def test_a_store_that_was_given_up_is_waited_for_shortly_until_it_answers(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("dying", b"1")
    monkeypatch.setattr(module, "_FIRST_S", 0.1)
    monkeypatch.setattr(module, "_LATER_S", 0.2)
    given, opened = list[float](), Bucket._opened
    monkeypatch.setattr(Bucket, "_opened", lambda self, patience_s: given.append(patience_s) or opened(self, patience_s))
    store = Bucket("s3", BUCKET)
    for fault in ("reset", "503"):
        proxy.fault = lambda _number, _request: ""
        assert store.find("dying").size_bytes == 1
        proxy.fault = lambda _number, _request, fault=fault: fault
        for _ in range(3):
            with pytest.raises(StoreError):
                store.put("dying", b"2")
    assert given == [0.1, 0.2, 0.1, 0.2, 0.1], "it was given up twice, and 503 is no answer that counts then"


def test_an_object_that_always_breaks_off_costs_itself(server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("broken", bytes(1000))
    monkeypatch.setattr(module, "_FIRST_S", 0.5)
    monkeypatch.setattr(module, "_LATER_S", 0.5)
    monkeypatch.setattr(module, "_BACKOFF", {**module._BACKOFF, "max_backoff": timedelta(milliseconds=200)})
    proxy.fault = lambda _number, request: "cut" if b"broken" in request else ""
    with pytest.raises(ObjectError, match=r"the store ended the connection before all of it had come, \d times"):
        here().get("broken", LIMIT, lambda _size: None)
    assert [each.key for page in here().list("") for each in page if each.key == "broken"] == ["broken"]


def test_missing_credentials_and_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SKIP_SIGNATURE", *module._OWN_ROLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")  # where a virtual machine of Amazon asks for its own
    monkeypatch.setattr(module, "_FIRST_S", 0.1)
    with pytest.raises(StoreError, match="there are no credentials for s3://b: set AWS_ACCESS_KEY_ID"):
        Bucket("s3", "b").find("x")
    with pytest.raises(UsageError, match=r"az://c cannot be opened .*: set AZURE_STORAGE_ACCOUNT_NAME"):
        Bucket("az", "c")
    for value in ("localhost:9000", "//hidden@host", "ftp://host", "http://"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", value)
        with pytest.raises(UsageError, match=r"^AWS_ENDPOINT_URL is no address of a server: write it as https://host or http"):
            Bucket("s3", "b")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match=r"gs://b needs the package obstore, which is not installed: pip install .*\[gcs\]"):
        Bucket("gs", "b")


def test_the_credentials_of_a_profile(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server.put("profile", b"1")
    with reached_from_here(server):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_PROFILE", "mine")
        with pytest.raises(UsageError, match=r"the credentials in ~/.aws cannot be used \(.*mine"):
            Bucket("s3", BUCKET)
        (tmp_path / "credentials").write_text(f"[mine]\naws_access_key_id = id\naws_secret_access_key = {SECRET}\n")
        assert Bucket("s3", BUCKET).find("profile").size_bytes == 1
