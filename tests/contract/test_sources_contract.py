"""Every way to name pictures keeps the promises of a folder: unique keys, exact counts, the same rows, resume, retry."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer import LaunchConfig, launch, open_dataset, partition_dataset, verify
from bulkinfer.launch.options import RetryConfig
from bulkinfer.launch.retry import retry

from tests import pictures
from tests.archives import spread, write_tar, write_tfrecord
from tests.commands import rows
from tests.models import write_tiny_model
from tests.object_store import BUCKET, Server, reached_from_here, s3_server

BROKEN = "b/cut.jpg"
NUM_ARCHIVES = 3


def files() -> dict[str, bytes]:
    """Good pictures of every way through the decoder, and one of each kind of error."""
    found = {f"a/{n:02d}.jpg": pictures.jpeg(48 + n, 40, n) for n in range(12)}
    found |= {
        "a/turned.jpg": pictures.oriented(pictures.noise(64, 48), 6),
        "b/moving.gif": pictures.animated("GIF"),
        "b/deep.png": pictures.grey16_png(),
        "b/without extension": pictures.jpeg(50, 40, 7),
        "b/caf\udce9.jpg": pictures.jpeg(60, 40, 8),  # not UTF-8
        "b/empty.jpg": b"",
        "b/page.jpg": pictures.HTML_PAGE,
        BROKEN: pictures.cut(pictures.jpeg(200, 150)),
    }
    return dict(sorted(found.items(), key=lambda item: os.fsencode(item[0])))


def write_folder(place: Path, wanted: dict[str, bytes]) -> Path:
    pictures.write_files(place, wanted)
    return place


def write_tars(place: Path, wanted: dict[str, bytes]) -> Path:
    for number, part in enumerate(spread(wanted, NUM_ARCHIVES)):
        write_tar(place / f"x-{number:05d}-of-{NUM_ARCHIVES:05d}.tar", part)
    return place


def write_one_tar(place: Path, wanted: dict[str, bytes]) -> Path:
    return write_tar(place / "photos.tar", wanted)


def in_bucket(write: Callable[[Path, dict[str, bytes]], Path]) -> Callable[[Path, dict[str, bytes]], str]:
    """Write pictures as `write` does, and put what it wrote into a bucket. The keys of objects are text."""

    def put(place: Path, wanted: dict[str, bytes]) -> str:
        names = {name: os.fsencode(name).decode("latin-1") for name in wanted}
        written = write(place, {names[name]: data for name, data in wanted.items()})
        server = Server.of_environment()
        server.put_folder(place, "data")
        return f"s3://{BUCKET}/data" + ("" if written == place else f"/{written.name}")

    return put


def write_tfrecords(place: Path, wanted: dict[str, bytes]) -> Path:
    names = {name: os.fsencode(name).decode("latin-1") for name in wanted}  # a name of a record is text here
    for number, part in enumerate(spread(wanted, NUM_ARCHIVES)):
        write_tfrecord(place / f"x-{number:05d}-of-{NUM_ARCHIVES:05d}", {names[name]: data for name, data in part.items()})
    return place


@dataclass(frozen=True)
class Source:
    """How pictures are written for a source, and whether partition_dataset lists them, with these options."""

    write: Callable[[Path, dict[str, bytes]], Path | str]
    partitions: dict[str, Any] | None = None


SOURCES = {
    "folder": Source(write_folder),
    "partitions": Source(write_folder, {}),
    "list": Source(write_folder, {"list_file": "list.txt", "mode": "manifest"}),
    "tar": Source(write_tars),
    "one_tar": Source(write_one_tar),
    "tar_partitions": Source(write_tars, {}),
    "tfrecord": Source(write_tfrecords),
    "tfrecord_partitions": Source(write_tfrecords, {}),
    "bucket": Source(in_bucket(write_folder)),
    "bucket_partitions": Source(in_bucket(write_folder), {}),
    "bucket_list": Source(in_bucket(write_folder), {"list_file": "list.txt"}),
    "bucket_tar": Source(in_bucket(write_tars)),
    "bucket_one_tar": Source(in_bucket(write_one_tar)),
}


class Home:
    """A folder with pictures, written for a source, and a tiny network; and the job over them."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self.source = folder, source
        write_tiny_model(folder / "models", batch_sizes=(4,))
        self.data_dir = self.write(files())

    def write(self, wanted: dict[str, bytes]) -> Path | str:
        """Write pictures; returns what a launch is given."""
        place = self.source.write(self.folder / "data", wanted)
        options = dict(self.source.partitions or {})
        if self.source.partitions is None:
            return place
        if "list_file" in options:
            options["list_file"] = self.folder / options["list_file"]
            names = [os.fsencode(name) for name in wanted]
            lines = [name.decode("latin-1").encode() for name in names] if isinstance(place, str) else names
            options["list_file"].write_bytes(b"".join(line + b"\n" for line in lines))
        partition_dataset(place, partitions=2, output=self.folder / "parts", **options)
        return self.folder / "parts"

    def config(self, **changes: Any) -> LaunchConfig:
        places = {name: str(self.folder / name) for name in ("log_path", "output")}
        return LaunchConfig(
            data_dir=str(self.data_dir), model_path=str(self.folder / "models"), model_name="tiny", batch_size=4, device="cpu",
            precision="fp32", engine="inline", batches_per_step=1, save=("topk", "embedding"), **{**places, **changes},
        )  # fmt: skip

    def run(self, **changes: Any) -> Any:
        return launch(self.config(**changes))

    @property
    def output(self) -> Path:
        return self.folder / "output"


SHORT = ("folder", "tar", "tfrecord", "tar_partitions")


@pytest.fixture(params=[name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in SOURCES])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    if not request.param.startswith("bucket"):
        yield Home(tmp_path, SOURCES[request.param])
        return
    with s3_server() as server, reached_from_here(server):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield Home(tmp_path, SOURCES[request.param])


def name_of(key: bytes) -> bytes:
    """The name of a picture in the folder that archives were made of, without the name of its archive."""
    for end in (b".tar/", b"-of-00003/"):
        key = key.rpartition(end)[2] if end in key else key
    return key.decode().encode("latin-1") if key.startswith("b/caf\xe9".encode()) else key


def by_name(output: Path) -> dict[bytes, dict[str, Any]]:
    """The rows by the names of their pictures, without keys."""
    found = {}
    for row in rows(output).to_pylist():
        key = row.pop("key_bytes") or row["key"].encode()
        del row["key"]
        found[name_of(key)] = row
    return found


def test_the_rows_are_those_of_the_folder(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keys are unique, every picture is counted, and what comes of it does not depend on where it lies."""
    result = home.run()
    assert (result.exit_code, result.records, result.ok) == (3, len(files()), len(files()) - 3)
    assert not verify(home.output).faults
    found = by_name(home.output)
    assert sorted(found) == sorted(map(os.fsencode, files()))
    plain = Home(tmp_path_factory.mktemp("plain"), SOURCES["folder"])
    plain.run()
    assert found == by_name(plain.output)


def test_keys_are_unique_and_in_order(home: Home) -> None:
    partitions = open_dataset(home.data_dir).partitions
    keys = [record.key for partition in partitions for record in partition.manifest.records()]
    assert len(set(keys)) == len(keys) == len(files())
    for partition in partitions:
        everything = list(partition.manifest.records())
        for start in range(len(everything)):  # a step is found without what lies before it
            assert list(partition.manifest.records(start, start + 1)) == everything[start : start + 1]


def test_a_job_goes_on_where_it_ended(home: Home) -> None:
    home.run()
    expected = rows(home.output)
    parts = sorted(home.output.glob("part-*.parquet"))
    numbers = {path: pq.read_metadata(path).num_rows for path in parts}
    for path in parts[1::2]:
        path.unlink()
    result = home.run()
    assert result.records == len(files())
    assert rows(home.output).equals(expected)
    assert {path: pq.read_metadata(path).num_rows for path in home.output.glob("part-*.parquet")} == numbers


def test_a_broken_picture_is_run_alone_once_it_is_repaired(home: Home) -> None:
    home.run()
    expected = by_name(home.output)
    home.source.write(home.folder / "data", {**files(), BROKEN: pictures.jpeg(200, 150)})  # archives: at other places, too
    result = retry(RetryConfig(output=str(home.output), stage=("decode",)))
    assert (result.exit_code, result.ok) == (3, len(files()) - 2)
    found = by_name(home.output)
    repaired = found.pop(os.fsencode(BROKEN))
    assert (repaired["status"], repaired["width"], repaired["height"]) == ("ok", 200, 150)
    assert found == {name: row for name, row in expected.items() if name != os.fsencode(BROKEN)}
    assert not verify(home.output).faults
