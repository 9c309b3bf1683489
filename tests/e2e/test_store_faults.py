"""Networks in a bucket, and what goes wrong with buckets: one sentence or error rows, and the same command goes on."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pictures
from tests.commands import rows
from tests.forms import long
from tests.models import write_tiny_model
from tests.object_store import BUCKET, KEY, Server, proxy_before, s3_server
from tests.store_place import LAUNCH, Place

NUM_PICTURES = 12


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


@pytest.fixture
def place(server: Server, tmp_path: Path) -> Iterator[Place]:
    write_tiny_model(tmp_path / "models", batch_sizes=(6,))
    pictures.write_files(tmp_path / "photos", {f"{n:02d}.jpg": pictures.jpeg(64 + n, 48, n) for n in range(NUM_PICTURES)})
    for key in server.all_keys():
        server.client.delete_object(Bucket=BUCKET, Key=key)
    for prefix in ("photos", "models"):
        server.put_folder(tmp_path / prefix, prefix)
    with proxy_before(server.url) as proxy:
        yield Place(tmp_path, server, proxy)


@long
def test_a_network_in_the_bucket_gives_the_rows_of_a_local_one(place: Place) -> None:
    words = (*LAUNCH, "--model_path", f"s3://{BUCKET}/models", "--data_dir", "photos", "--output", "out")
    place.run(*words, "--limit", 6)
    place.is_as_local("out", "--limit", 6, code=0)
    card = (place.folder / "models" / "tiny" / "card.json").read_bytes()
    shutil.rmtree(place.folder / "cache")  # as on another host
    assert "6 of 6 records are done" in place.run(*words, "--limit", 6)
    (kept,) = (place.folder / "cache").rglob("card.json")
    assert kept.read_bytes() == card
    place.server.put("models/tiny/weights.bin", b"of somebody else")
    shutil.rmtree(place.folder / "cache")
    refused = place.sentence(*words, "--limit", 6, code=2)
    assert f"s3://{BUCKET}/models/tiny/weights.bin is not what its record says (sha256 " in refused
    place.server.put_folder(place.folder / "models", "models")
    place.run(*words, "--limit", 6)


def answer(status: int, code: str) -> bytes:
    """An answer of S3 with an error."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>hidden</Message></Error>"
    return f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


PAGE = b"<!doctype html><html><head></head><body>hi<br></body></html>"
ENDS = [  # what the store answers to each request, and the sentence
    (answer(403, "ExpiredToken"), "the credentials for s3://bucket have expired (ExpiredToken): renew them"),
    (
        answer(403, "InvalidAccessKeyId"),
        "s3://bucket does not accept the credentials (InvalidAccessKeyId): set AWS_",
    ),
    (answer(403, "SignatureDoesNotMatch"), "s3://bucket does not accept the credentials (SignatureDoesNotMatch): set AWS_"),
    (answer(403, "AccessDenied"), "s3://bucket refuses access (AccessDenied): ask its owner for it, or set AWS_ACCESS_KEY_ID"),
    (
        answer(403, "RequestTimeTooSkewed"),
        "s3://bucket refuses requests by this machine's clock (RequestTimeTooSkewed): set",
    ),
    (answer(301, "PermanentRedirect"), "s3://bucket lies in another region (a redirect without an address): set AWS_REGION"),
    (
        answer(400, "AuthorizationHeaderMalformed"),
        "s3://bucket lies in another region (AuthorizationHeaderMalformed): set A",
    ),
    (answer(400, "InvalidBucketName"), "s3://bucket cannot be listed (InvalidBucketName): check its name and AWS_ENDPOINT_URL"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE),
        "s3://bucket does not answer as a store of objects",
    ),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "s3://bucket does not answer as a store of objects does"),
]


@long
def test_what_a_store_refuses_is_one_sentence_and_the_same_command_goes_on(place: Place) -> None:
    """Each is met at the listing, and again, but for those of listings, while pictures are read."""
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", "out", "--batches_per_step", 1)
    for said, sentence in ENDS:
        place.proxy.fault = lambda _number, _request, said=said: said
        assert sentence in place.sentence(*words, code=1)
    for said, sentence in ENDS[:3] + ENDS[5:7]:
        place.proxy.fault = lambda _number, request, said=said: said if b"list-type" not in request else ""
        stdout, stderr = place.start(*words).communicate(timeout=300)
        assert (sentence in stderr, stderr.count("\n")) == (True, 1), stdout + stderr
        assert "hidden" not in stdout + stderr
    place.proxy.fault = lambda _number, _request: ""
    place.run(*words)
    place.is_as_local("out", code=0)


ENVIRONMENTS = [
    ({"AWS_SECRET_ACCESS_KEY": ""}, "s3://bucket cannot be opened (Missing SecretAccessKey): set AWS_ACCESS_KEY_ID"),
    ({"AWS_ENDPOINT_URL": "localhost:9000"}, "AWS_ENDPOINT_URL is no address of a server: write it as https://host"),
]


@long
@pytest.mark.parametrize(("variables", "sentence"), ENVIRONMENTS)
def test_a_wrong_environment_is_one_sentence(place: Place, variables: dict[str, str], sentence: str) -> None:
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", "out")
    assert sentence in place.sentence(*words, code=2, **variables)


@long
def test_a_server_that_never_answers_is_given_up(place: Place) -> None:
    place.proxy.fault = lambda _number, _request: "hole"
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", "out")
    assert f"s3://{BUCKET} does not answer after one try: check the network" in place.sentence(*words, code=1)


# Keys that mean something to a shell, an address or XML, and one of 1,024 bytes
ODD_KEYS = [
    "a b.jpg", "a%20b.jpg", "a+b.jpg", "a#b.jpg", "a?b=c&d.jpg", "ü日.jpg", "é.jpg", "'\"<>&.jpg", "a\\b.jpg", "a:b@c.jpg",
    " a.jpg", "[x]{y}|~.jpg", "x" * (1024 - len("odd/.jpg")) + ".jpg",
]  # fmt: skip


@long
def test_odd_objects(place: Place) -> None:
    """Keys of all kinds are read; what is no picture, too large, or goes away is an error row, which retry runs again."""
    picture = pictures.jpeg(64, 48, 3)
    for key in ODD_KEYS:
        place.server.put(f"odd/{key}", picture)
    place.server.put("odd/empty.jpg", b"")
    place.server.put("odd/large.jpg", picture + bytes(200_000))
    place.server.put("odd/folder/", b"")
    compressed = gzip.compress(picture)
    place.server.client.put_object(Bucket=BUCKET, Key="odd/packed.jpg", Body=compressed, ContentEncoding="gzip")
    place.server.put("odd/gone.jpg", picture)

    def remove(_number: int, request: bytes) -> str:
        if b"list-type" not in request:
            place.server.client.delete_object(Bucket=BUCKET, Key="odd/gone.jpg")
        return ""

    place.proxy.fault = remove
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/odd", "--output", "out", "--max_file_bytes", 100_000)
    place.run(*words, code=3)
    found = {row["key"]: (row["status"], row["stage"], row["error"]) for row in rows(place.folder / "out").to_pylist()}
    assert {key for key, (status, _, _) in found.items() if status == "ok"} == {*ODD_KEYS}
    assert {key: row[1:] for key, row in found.items() if row[0] == "error"} == {
        "empty.jpg": ("decode", "empty file"),
        "large.jpg": ("read", f"too large: {len(picture) + 200_000} bytes, limit 100000"),
        "packed.jpg": ("decode", "not a picture: gzip archive"),
        "gone.jpg": ("read", "object not found"),
    }
    place.proxy.fault = lambda _number, _request: ""
    place.server.put("odd/gone.jpg", picture)
    place.run("bulkinfer", "retry", "out", code=3)
    assert rows(place.folder / "out")["status"].to_pylist().count("error") == 3
    place.server.put("slashes//a.jpg", picture)
    refused = place.sentence(*LAUNCH, "--data_dir", f"s3://{BUCKET}/slashes", "--output", "out2", code=2)
    assert "of one of them its key has an empty part" in refused


SECRETS = [
    f"s3://{KEY}:hidden@{BUCKET}/photos",
    "https://host/x.tar?X-Amz-Credential=hidden&X-Amz-Signature=hidden",
    "https://account.blob.core.windows.net/c/x.tar?sv=2024&sig=hidden",
]


@long
@pytest.mark.parametrize("address", SECRETS)
def test_secrets_in_addresses_are_neither_printed_nor_stored(place: Place, address: str) -> None:
    for option in ("--data_dir", "--model_path", "--labels"):
        words = {"--data_dir": "photos", option: address}
        place.sentence(*LAUNCH, *(word for pair in words.items() for word in pair), "--output", "out", code=2)
    place.sentence("partition_dataset", "--list_file", address, code=2)
    (place.folder / "list.txt").write_text(f"{address}\n")
    place.sentence("partition_dataset", "--list_file", "list.txt", code=2)
    (place.folder / "list.txt").unlink()
    assert [path for path in place.folder.rglob("*") if path.is_file() and b"hidden" in path.read_bytes()] == []
