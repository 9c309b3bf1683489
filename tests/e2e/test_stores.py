"""Pictures in a bucket and on a web server: the rows of the folder, whatever fails on the way; one sentence for what stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import pictures
from tests.archives import spread, write_tar
from tests.commands import rows
from tests.forms import long
from tests.models import write_tiny_model
from tests.object_store import BUCKET, KEY, SECRET, Gate, Server, proxy_before, s3_server
from tests.store_place import LAUNCH, Place, kill_worker_and_launcher

NUM_PICTURES = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


@pytest.fixture
def place(server: Server, tmp_path: Path) -> Iterator[Place]:
    write_tiny_model(tmp_path / "models", batch_sizes=(6,))
    files = {f"a/{number:03d}.jpg": pictures.jpeg(100 + number, 90, number) for number in range(NUM_PICTURES)}
    files |= {"b/page.jpg": pictures.HTML_PAGE, "b/empty.jpg": b"", "b/no extension": pictures.jpeg(64, 48, 7)}
    files |= {"b/notes.txt": b"no picture", ".hidden/x.jpg": pictures.jpeg()}
    pictures.write_files(tmp_path / "photos", files)
    server.put_folder(tmp_path / "photos", "photos")
    with proxy_before(server.url) as proxy:
        yield Place(tmp_path, server, proxy)


def faulty(number: int, _request: bytes) -> str:
    """Every few requests fail in a way that passes."""
    return {3: "503", 5: "reset", 8: "cut"}.get(number % 11, "")


def test_the_rows_of_a_bucket_are_those_of_the_folder(place: Place) -> None:
    place.proxy.fault = lambda number, request: faulty(number, request) or 0.02
    printed = place.run(*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", "out", code=3)
    assert f"found {NUM_PICTURES + 3} pictures" in printed
    assert "ignored 1 hidden" in printed
    assert "not pictures: 1 (1 .txt)" in printed
    place.is_as_local("out")
    for path in (place.folder / "logs").rglob("*"):  # credentials are stored nowhere
        assert not path.is_file() or not {KEY.encode(), SECRET.encode()} & set(path.read_bytes().split(b'"'))


@long
def test_loader_processes_get_what_the_worker_reads(place: Place) -> None:
    place.run(*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos/", "--loader_processes", 2, "--output", "out", code=3)
    place.is_as_local("out")


@long
def test_partitions_of_a_bucket(place: Place) -> None:
    source = f"s3://{BUCKET}/photos"
    place.run("partition_dataset", "--data_dir", source, "--partitions", 3, "--labels", "folders")
    requests = len(place.proxy.requests)
    place.run(*LAUNCH, "--output", "out", code=3)
    assert not [line for line in place.proxy.requests[requests:] if b"list-type" in line]  # the manifests have it all
    found, labels = rows(place.folder / "out"), {"a": 0, "b": 1}
    assert found["label"].to_pylist() == [labels[key.partition("/")[0]] for key in found["key"].to_pylist()]
    refused = place.sentence("partition_dataset", "--data_dir", source, "--mode", "copy", "--output", "c", code=2)
    assert f"--mode copy is for pictures on this machine, and these lie in {source}: leave it out" in refused


@long
def test_archives_in_a_bucket_are_read_in_part(place: Place) -> None:
    files = {f"{number:03d}.jpg": pictures.jpeg(100 + number, 90, number) for number in range(30)}
    for number, part in enumerate(spread(files, 3)):
        write_tar(place.folder / "shards" / f"{number:05d}.tar", part)
    place.server.put_folder(place.folder / "shards", "shards")
    place.run(*LAUNCH, "--data_dir", f"s3://{BUCKET}/shards", "--output", "out")
    requests = len(place.proxy.requests)
    place.run(*LAUNCH, "--data_dir", f"s3://{BUCKET}/shards", "--output", "again")
    asked = place.proxy.requests[requests:]
    assert (
        len([line for line in asked if b".tar" in line and line.startswith(b"GET")]) == len(files) + 3
    )  # the index is kept; the listing reads first bytes
    place.run(*LAUNCH, "--data_dir", "shards", "--output", "local")
    assert rows(place.folder / "out").equals(rows(place.folder / "local"))
    place.server.put("shards/00001.tar", b"")  # it changed, and is no archive any more
    refused = place.sentence(*LAUNCH, "--data_dir", f"s3://{BUCKET}/shards", "--output", "third", code=2)
    assert f"s3://{BUCKET}/shards/00001.tar cannot be read as a tar file" in refused


@long
def test_a_list_of_addresses(place: Place) -> None:
    for number in range(6):
        place.server.client.put_object_acl(Bucket=BUCKET, Key=f"photos/a/{number:03d}.jpg", ACL="public-read")
    web = [f"{place.proxy.url}/{BUCKET}/photos/a/{number:03d}.jpg?size=large" for number in range(6)]
    lines = [*web, f"s3://{BUCKET}/photos/a/006.jpg", f"s3://{BUCKET}/none.jpg", "http://127.0.0.1:1/a.jpg"]
    (place.folder / "list.txt").write_text("\n".join(lines))
    place.proxy.fault = faulty
    place.run("partition_dataset", "--list_file", "list.txt", "--output", "listed")
    place.run(*LAUNCH, "--data_dir", "listed", "--output", "out", code=3)
    found = {row["key"]: (row["status"], row["error"]) for row in rows(place.folder / "out").to_pylist()}
    assert sorted(found) == sorted(lines)
    assert {found[line] for line in lines[:7]} == {("ok", None)}
    assert [found[line][1] for line in lines[7:]] == ["object not found", "its server cannot be reached"]
    place.server.put("lists/of pictures.txt", "\n".join(lines).encode())
    printed = place.run("partition_dataset", "--list_file", f"s3://{BUCKET}/lists/of pictures.txt", "--output", "listed")
    assert "list names 9 pictures in stores" in printed
    place.server.put("none.jpg", pictures.jpeg())
    place.run("bulkinfer", "retry", "out", code=3)
    assert rows(place.folder / "out")["status"].to_pylist().count("error") == 1


@long
def test_a_launch_that_is_killed_goes_on(place: Place) -> None:
    """Kills of worker and launcher, and faults of the store, in between."""
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", "out", "--batches_per_step", 1)
    gate = Gate(lambda request: request.startswith(b"GET /bucket/photos/"), 40)
    place.proxy.fault = lambda number, request: (faulty(number, request) or 0.02) if gate.lets(request) else "reset"
    kill_worker_and_launcher(place.start(*words), gate, 60)
    place.run(*words, code=3)
    place.is_as_local("out")


REFUSALS = [
    ("s3://nobucket/x", {}, 2, "the bucket s3://nobucket does not exist: correct its name"),
    (f"s3://{BUCKET}/nothing", {}, 2, f"s3://{BUCKET}/nothing holds no pictures"),
    (f"s3://{BUCKET}/photos", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, 1, f"s3://{BUCKET} cannot be reached after"),
    ("https://ann:hidden@host/x.tar", {}, 2, "https://host/x.tar holds a user or password"),
    ("https://host/x.tar?X-Amz-Signature=hidden", {}, 2, "https://host/x.tar?... holds a signature or key (X-Amz-Signature)"),
    ("http://127.0.0.1:1/photos/", {}, 2, "a web server does not list its files"),
]


@long
@pytest.mark.parametrize(("data_dir", "variables", "code", "words"), REFUSALS)
def test_what_stays_is_one_sentence(place: Place, data_dir: str, variables: dict[str, str], code: int, words: str) -> None:
    assert words in place.sentence(*LAUNCH, "--data_dir", data_dir, code=code, **variables)


@long
def test_credentials_that_expire_end_the_launch_and_it_goes_on(place: Place) -> None:
    words: tuple[Any, ...] = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", "out", "--batches_per_step", 1)
    begun = len(place.proxy.requests)
    place.proxy.fault = lambda number, _request: "expired" if number > begun + 30 else ""
    process = place.start(*words)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    assert f"the credentials for s3://{BUCKET} have expired (ExpiredToken): renew them" in stderr
    place.proxy.fault = lambda _number, _request: ""
    place.run(*words, code=3)
    place.is_as_local("out")
    assert json.loads((place.folder / ".out.bulkinfer" / "_job.json").read_text())["config"]["data_dir"].startswith("s3:")
