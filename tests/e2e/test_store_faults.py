"""Networks in a bucket, and what goes wrong with buckets: one sentence or error rows, and the same command goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pictures
from tests.forms import long
from tests.models import write_tiny_model
from tests.object_store import BUCKET, Server, proxy_before, s3_server
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
