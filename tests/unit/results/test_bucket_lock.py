"""The lock of an output in a bucket: one holder, renewed, taken over when it is dead, and seen to be lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bulkinfer.errors import DamagedLockError, LockedError, RunError, UsageError
from bulkinfer.files import lease
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.lock_holder import lock_text, new_holder
from bulkinfer.results.bucket_lock import BucketLease, take
from bulkinfer.results.bucket_store import put_object, read_object
from bulkinfer.results.output_locks import check_lock, is_lock_held, launcher_in, lock_of_output
from bulkinfer.stores.bucket import Bucket

from tests.object_store import BUCKET, Proxy, Server, proxy_before, reached_from_here, s3_server

OUT = AddressPath(f"s3://{BUCKET}/out")
LOCK = OUT / ".bulkinfer" / "_lock.json"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    server.remove_all()
    with proxy_before(server.url) as found, reached_from_here(server, found.url):
        yield found


def content() -> dict[str, Any]:
    found = read_object(LOCK)
    assert found is not None
    value: dict[str, Any] = json.loads(found.data)
    return value


def of_another(**changes: Any) -> None:
    """Put the lock of another process there."""
    there = read_object(LOCK)
    holder = {**new_holder(), **changes}
    put_object(LOCK, lock_text(holder), instead_of=there.tag if there else "")  # type: ignore[arg-type]


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_one_process_has_it_and_it_is_gone_afterwards(server: Server, proxy: Proxy) -> None:
    with lock_of_output(OUT) as held:
        assert held.refusal is None
        held.check()
        check_lock(str(LOCK), held.token)
        assert "a launcher on" in launcher_in(OUT)
        with pytest.raises(LockedError, match=f"{OUT} is in use by a launcher on .*: wait for it, or give another --output"):
            lock_of_output(OUT).__enter__()
    assert launcher_in(OUT) == ""
    assert server.all_keys() == []


def test_of_many_that_try_one_gets_it(proxy: Proxy) -> None:
    found = list[Any]()
    threads = [threading.Thread(target=lambda: found.append(take(LOCK))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [each for each in found if isinstance(each, BucketLease)]
    assert (len(found), len(taken)) == (6, 1)
    assert content()["token"] == taken[0].token
    taken[0].release()


def test_it_is_renewed_with_another_content(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.01)
    with lock_of_output(OUT) as held:
        while content().get("beat", 0) < 2:
            held.check()


def test_a_process_that_has_ended_here_is_replaced_at_once(proxy: Proxy) -> None:
    of_another(pid=ended_pid(), start_ticks=1)
    with lock_of_output(OUT) as held:
        held.check()


def test_a_holder_of_another_host_is_dead_when_it_does_not_renew(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bulkinfer")
    monkeypatch.setattr(lease, "LEASE_S", 0.2)
    of_another(host="elsewhere", boot_id="another", pids="another")
    with lock_of_output(OUT) as held:
        held.check()
    assert f"{OUT} is locked by a launcher on elsewhere" in caplog.text
    assert "was not renewed for 0.2 s: taken over" in caplog.text
    assert "s3:/b" not in caplog.text


def test_a_holder_of_another_host_that_renews_is_respected(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_S", 5.0)
    other = {"host": "elsewhere", "boot_id": "another", "pids": "another"}
    of_another(**other)
    found = take(LOCK, on_watch=lambda _holder: of_another(**other))
    assert not isinstance(found, BucketLease)
    assert found["host"] == "elsewhere"


def test_a_lock_that_was_lost_is_seen(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.01)
    with lock_of_output(OUT) as held:
        lost_to_another()
        while held.refusal is None:
            pass
        assert not is_lock_held(str(LOCK), held.token)
        with pytest.raises(RunError, match=f"{LOCK} was lost"):
            held.check()
    assert content()["host"] == "elsewhere"  # that of the other one stays


def lost_to_another() -> None:
    """Another process takes the lock over between two beats."""
    while True:
        try:
            of_another(host="elsewhere")
            return
        except RunError:  # a beat came between
            continue


def test_a_damaged_lock_is_named_and_replaced_with_overwrite(proxy: Proxy) -> None:
    put_object(LOCK, b"{")
    with pytest.raises(DamagedLockError, match=f"{LOCK} is damaged"):
        lock_of_output(OUT).__enter__()
    with lock_of_output(OUT, replaces_damaged=True) as held:
        held.check()


def test_a_store_that_ignores_conditions_is_refused(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Bucket.put
    monkeypatch.setattr(Bucket, "put", lambda self, key, data, **_: plain(self, key, data))
    with pytest.raises(UsageError, match="does not know conditional puts"):
        lock_of_output(OUT).__enter__()
    assert read_object(LOCK) is None
