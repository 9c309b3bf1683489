"""Outputs in a bucket against a real S3 server: whole objects, conditional puts, answers that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bulkinfer.errors import ConflictError, RunError, StoreError, UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.results import bucket_store as module
from bulkinfer.results.bucket_store import put_object, read_object
from bulkinfer.results.control_files import control_exists, read_control, show_control, write_control, write_new_control
from bulkinfer.results.output_store import OutputStore, output_store, require_bucket
from bulkinfer.results.parquet_parts import count_stages, inspect_part, published_steps, set_aside, write_part
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Step

from tests.object_store import BUCKET, Proxy, Server, proxy_before, reached_from_here, s3_server
from tests.rows import filled_rows, task


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


@pytest.fixture
def proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    server.remove_all()
    with proxy_before(server.url) as found, reached_from_here(server, found.url):
        yield found


OUT = AddressPath(f"s3://{BUCKET}/out")


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_folder_and_a_prefix_do_the_same(kind: str, proxy: Proxy, tmp_path: Path) -> None:
    output: Path = OUT if kind == "bucket" else tmp_path / "out"
    store: OutputStore = output_store(output)
    assert (store.is_there(), store.entries(), store.has("a"), store.size_bytes("a")) == (False, {}, False, None)
    store.make()

    def put(name: str, data: bytes, **how: bool) -> str:
        return store.publish(name, lambda file: file.write(data) and None, lambda: None, **how)

    assert put("a", b"12") == "6b51d431df5d7f141cbececcf79edf3dd861c3b4069f0b11661a3eefacbba918"
    assert (store.read("a", 2), store.has("a"), store.size_bytes("a"), store.is_there()) == (b"12", True, 2, True)
    with store.opened("a") as file:
        assert file.read() == b"12"
    put("a", b"345", replaces=True)
    assert store.read("a", 9) == b"345"

    def refuse() -> None:
        raise RunError("lost")

    with pytest.raises(RunError, match="lost"):
        store.publish("b", lambda file: None, refuse)
    put("_c", b"1")
    assert sorted(store.entries()) == ["_c", "a"]
    assert list(store.readable_files()) == ["a"]
    aside = store.set_aside("a", "_a.damaged")
    assert (sorted(store.entries()), output_store(aside.parent).read(aside.name, 9)) == (["_c"], b"345")
    store.remove("_c")
    store.remove("_c")
    assert store.entries() == {}


def test_names_are_those_directly_below_the_prefix(server: Server, proxy: Proxy) -> None:
    for key in ("out/", "out/a.parquet", "out/.bulkinfer/_job.json", "out/more/b.parquet", "outer/c.parquet"):
        server.put(key, b"1")
    store = output_store(OUT)
    assert list(store.entries()) == ["a.parquet"]
    assert list(store.readable_files()) == ["a.parquet", "more/b.parquet"]
    assert output_store(OUT / ".bulkinfer").has("_job.json")


def test_a_name_that_is_there_is_a_conflict(proxy: Proxy) -> None:
    tag = put_object(OUT / "x", b"one")
    assert put_object(OUT / "x", b"one") == tag  # the very same: an answer was lost
    with pytest.raises(ConflictError, match=f"{OUT}/x was made or changed by another process"):
        put_object(OUT / "x", b"two")
    second = put_object(OUT / "x", b"two", instead_of=tag)
    with pytest.raises(ConflictError):
        put_object(OUT / "x", b"three", instead_of=tag)
    assert put_object(OUT / "x", b"two", instead_of=tag) == second
    with pytest.raises(ConflictError):
        put_object(OUT / "none", b"three", instead_of=tag)
    found = read_object(OUT / "x")
    assert found is not None
    assert (found.data, found.tag) == (b"two", second)
    assert read_object(OUT / "none") is None


@pytest.mark.parametrize("fault", ["cut", "reset", "503"])
def test_a_put_whose_answer_is_lost_is_done_once(fault: str, server: Server, proxy: Proxy) -> None:
    """`cut` does the put and loses its answer; `reset` and `503` do not."""
    left = [2]

    def faulty(_number: int, request: bytes) -> str:
        if not request.startswith(b"PUT") or not left[0]:
            return ""
        left[0] -= 1
        return fault

    proxy.fault = faulty
    tag = put_object(OUT / fault, b"content")
    assert server.client.get_object(Bucket=BUCKET, Key=f"out/{fault}")["Body"].read() == b"content"
    assert put_object(OUT / fault, b"next", instead_of=tag) != tag
    assert server.all_keys() == [f"out/{fault}"]


def test_what_stays_is_raised_with_the_name(proxy: Proxy) -> None:
    with pytest.raises(RunError, match=f"{OUT}/none does not exist"):
        output_store(OUT).read("none", 9)
    proxy.fault = lambda _number, _request: "expired"
    with pytest.raises(StoreError, match="have expired"):
        put_object(OUT / "y", b"1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://host/out", "--output https://host/out: a web server takes no results: give a bucket"),
        ("s3://bucket/a/../b", "an address has no .."),
        ("s3://ann:hidden@bucket/out", "holds a user or password"),
    ],
)
def test_addresses_that_take_no_results(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        require_bucket(AddressPath(address), "--output")
    assert "hidden" not in str(raised.value)


def test_a_step_that_another_worker_has_published_is_taken_if_its_rows_are_equal(server: Server, proxy: Proxy) -> None:
    step, rows = Step(0, 0, 3), filled_rows(Step(0, 0, 3), task())
    first = write_part(OUT, rows, 3, {"fingerprint": "f", "versions": {"x": "1"}})
    second = write_part(OUT, rows, 3, {"fingerprint": "f", "versions": {"x": "2"}})
    assert first.sha256 == second.sha256 == inspect_part(OUT, step, "f").sha256
    rows.errors[1] = ("read", "gone")
    with pytest.raises(ConflictError, match="made or changed by another process"):
        write_part(OUT, rows, 3, {"fingerprint": "f"})
    assert count_stages(OUT, step) == first.stages
    assert published_steps(OUT) == [step]
    assert set_aside(OUT, step) == OUT / ".bulkinfer" / f"_{part_name(step)}.damaged"
    assert published_steps(OUT) == []


def test_control_files_know_what_they_replace(proxy: Proxy) -> None:
    path = OUT / ".bulkinfer" / "_job.json"
    assert not control_exists(path)
    assert write_new_control(path, {"a": 1})
    assert not write_new_control(path, {"a": 2})
    found = read_control(path)
    assert found.content == {"a": 1}
    assert found.age_s < 60
    write_control(path, {"a": 3}, instead_of=found.tag)
    with pytest.raises(ConflictError):
        write_control(path, {"a": 4}, instead_of=found.tag)
    show_control(path, {"a": 5})
    assert read_control(path).content == {"a": 5}
    with pytest.raises(UsageError, match=f"{path.with_name('none')} does not exist"):
        read_control(path.with_name("none"))
