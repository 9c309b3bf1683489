"""Every way to name pictures keeps the promises of a folder: unique keys, exact counts, the same rows, resume, retry."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer import LaunchConfig, launch, open_dataset, partition_dataset, verify
from bulkinfer.commands.score import score_job
from bulkinfer.errors import BulkinferError
from bulkinfer.insight.options import ScoreConfig
from bulkinfer.launch.options import RetryConfig
from bulkinfer.launch.retry import retry

from tests import models, pictures
from tests.archives import picture_table, spread, write_arrow, write_parquet, write_tar, write_tar_gz, write_tfrecord, write_zip
from tests.commands import rows
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


CLASSES = ["cyan", "white"]  # of the network, in which they are others than 0 and 1
LABELS = {name: "ab".index(name[0]) for name in files()}


def write_folder(place: Path, wanted: dict[str, bytes]) -> Path:
    pictures.write_files(place, wanted)
    return place


def write_as_text(place: Path, wanted: dict[str, bytes]) -> Path:
    """For lists that hold text alone: names are UTF-8."""
    return write_folder(place, {as_text(name): data for name, data in wanted.items()})


def as_text(name: str) -> str:
    """The name of a picture in an archive where names are text."""
    return os.fsencode(name).decode("latin-1")


def each_archive(place: Path, wanted: dict[str, bytes], end: str) -> Iterator[tuple[Path, dict[str, bytes]]]:
    for number, part in enumerate(spread(wanted, NUM_ARCHIVES)):
        yield place / f"x-{number:05d}-of-{NUM_ARCHIVES:05d}{end}", part


def write_tars(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ".tar"):
        write_tar(path, part, LABELS)
    return place


def write_one_tar(place: Path, wanted: dict[str, bytes]) -> Path:
    return write_tar(place / "photos.tar", wanted, LABELS)


def write_tar_gzs(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ".tar.gz"):
        write_tar_gz(path, part, LABELS)
    return place


def write_zips(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ".zip"):
        write_zip(path, *texts_of(part))
    return place


def write_one_zip(place: Path, wanted: dict[str, bytes]) -> Path:
    return write_zip(place / "photos.zip", *texts_of(wanted))


def texts_of(wanted: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, int]]:
    """Pictures and labels by names that are text."""
    return {as_text(name): data for name, data in wanted.items()}, {as_text(name): LABELS[name] for name in wanted}


def write_tfrecords(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ""):
        held, labels = texts_of(part)
        write_tfrecord(path, held, {name: label + 1 for name, label in labels.items()})
    return place


def write_parquets(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ".parquet"):
        write_parquet(path, picture_table(*texts_of(part), CLASSES))
    return place


def write_one_parquet(place: Path, wanted: dict[str, bytes]) -> Path:
    """As `pandas` writes it: one row group, plain columns."""
    held, labels = texts_of(wanted)
    columns = {"file_name": list(held), "content": list(held.values()), "class": [CLASSES[labels[name]] for name in held]}
    return write_parquet(place / "photos.parquet", pa.table(columns), row_group_size=1 << 20)


def write_arrows(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ".arrow"):
        write_arrow(path, picture_table(*texts_of(part), CLASSES))
    return place


def write_streams(place: Path, wanted: dict[str, bytes]) -> Path:
    for path, part in each_archive(place, wanted, ".arrow"):
        write_arrow(path, picture_table(*texts_of(part), CLASSES), is_stream=True)
    return place


def write_lines(path: Path, names: list[str]) -> None:
    path.write_bytes(b"".join(os.fsencode(name) + b"\n" for name in names))


def write_csv(path: Path, names: list[str]) -> None:
    path.write_bytes(b"label,file\n" + b"".join(b'%d,"%b"\n' % (LABELS[name], os.fsencode(name)) for name in names))


def write_json_lines(path: Path, names: list[str]) -> None:
    path.write_text("".join(json.dumps({"file_name": name, "label": LABELS[name]}) + "\n" for name in names))


def write_parquet_list(path: Path, names: list[str]) -> None:
    pq.write_table(pa.table({"path": [as_text(name) for name in names], "label": [LABELS[name] for name in names]}), path)


def write_coco(path: Path, names: list[str]) -> None:
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    annotations = [{"image_id": number, "category_id": LABELS[name]} for number, name in enumerate(names)]
    path.write_text(json.dumps({"images": images, "annotations": annotations}))


def in_bucket(write: Callable[[Path, dict[str, bytes]], Path]) -> Callable[[Path, dict[str, bytes]], str]:
    """Write pictures as `write` does, and put what it wrote into a bucket."""

    def put(place: Path, wanted: dict[str, bytes]) -> str:
        written = write(place, wanted)
        Server.of_environment().put_folder(place, "data")
        return f"s3://{BUCKET}/data" + ("" if written == place else f"/{written.name}")

    return put


def write_text_lines(path: Path, names: list[str]) -> None:
    path.write_text("".join(as_text(name) + "\n" for name in names))


@dataclass(frozen=True)
class Source:
    """How pictures are written for a source; the file that names them, if there is one, and the options of partition_dataset
    (None: there are no partitions) and of infer_launch."""

    write: Callable[[Path, dict[str, bytes]], Path | str]
    partitions: dict[str, Any] | None = None
    listing: tuple[str, str, Callable[[Path, list[str]], None]] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    has_labels: bool = True


MANIFEST = {"mode": "manifest"}
SOURCES = {
    "folder": Source(write_folder, has_labels=False),
    "class_folders": Source(write_folder, options={"labels": "folders"}),
    "partitions": Source(write_folder, {}, has_labels=False),
    "list": Source(write_folder, MANIFEST, ("list_file", "list.txt", write_lines), has_labels=False),
    "csv": Source(write_folder, MANIFEST, ("list_file", "list.csv", write_csv)),
    "json_lines": Source(write_folder, {}, ("list_file", "list.jsonl", write_json_lines)),
    "parquet_list": Source(write_as_text, MANIFEST, ("list_file", "list.parquet", write_parquet_list)),
    "coco": Source(write_folder, {"labels": "annotations"}, ("annotations", "coco.json", write_coco)),
    "tar": Source(write_tars),
    "one_tar": Source(write_one_tar),
    "tar_partitions": Source(write_tars, {}),
    "tar_gz": Source(write_tar_gzs),
    "zip": Source(write_zips),
    "one_zip": Source(write_one_zip),
    "zip_partitions": Source(write_zips, {}),
    "tfrecord": Source(write_tfrecords),
    "tfrecord_partitions": Source(write_tfrecords, {}),
    "parquet": Source(write_parquets),
    "one_parquet": Source(write_one_parquet),
    "parquet_partitions": Source(write_parquets, {}),
    "arrow": Source(write_arrows),
    "arrow_streams": Source(write_streams),
    "arrow_partitions": Source(write_arrows, {}),
    "bucket": Source(in_bucket(write_as_text), has_labels=False),
    "bucket_partitions": Source(in_bucket(write_as_text), {}, has_labels=False),
    "bucket_list": Source(in_bucket(write_as_text), {}, ("list_file", "list.txt", write_text_lines), has_labels=False),
    "bucket_tar": Source(in_bucket(write_tars)),
    "bucket_tar_gz": Source(in_bucket(write_tar_gzs)),
    "bucket_one_tar": Source(in_bucket(write_one_tar)),
    "bucket_zip": Source(in_bucket(write_zips)),
    "bucket_tfrecord": Source(in_bucket(write_tfrecords)),
    "bucket_parquet": Source(in_bucket(write_parquets)),
    "bucket_arrow": Source(in_bucket(write_arrows)),
}
NO_ARCHIVES = (write_folder, write_as_text)
ARCHIVES = [name for name, each in SOURCES.items() if each.write not in NO_ARCHIVES and not name.startswith("bucket")]


class Home:
    """A folder with pictures, written for a source, and a tiny network; and the job over them."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self.source = folder, source
        models.write_tiny_model(folder / "models", batch_sizes=(4,))
        self.data_dir = self.write(files())

    def write(self, wanted: dict[str, bytes]) -> Path | str:
        """Write pictures; returns what a launch is given."""
        place = self.source.write(self.folder / "data", wanted)
        if self.source.partitions is None:
            return place
        options = dict(self.source.partitions)
        if self.source.listing:
            option, name, write_listing = self.source.listing
            write_listing(self.folder / name, list(wanted))
            options[option] = self.folder / name
        partition_dataset(place, partitions=2, output=self.folder / "parts", **options)
        return self.folder / "parts"

    def config(self, **changes: Any) -> LaunchConfig:
        places = {name: str(self.folder / name) for name in ("log_path", "output")}
        given = {**places, **self.source.options, **changes}
        return LaunchConfig(
            data_dir=str(self.data_dir), model_path=str(self.folder / "models"), model_name="tiny", batch_size=4, device="cpu",
            precision="fp32", engine="inline", batches_per_step=1, save=("topk", "embedding"), **given,
        )  # fmt: skip

    def run(self, **changes: Any) -> Any:
        return launch(self.config(**changes))

    @property
    def output(self) -> Path:
        return self.folder / "output"


SHORT = ("folder", "tar", "zip", "tfrecord", "parquet", "arrow", "tar_partitions", "csv")


def short_ones(names: Iterable[str], short: Container[str] = SHORT) -> list[Any]:
    return [name if name in short else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.fixture(params=short_ones(SOURCES))
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    if not request.param.startswith("bucket"):
        yield Home(tmp_path, SOURCES[request.param])
        return
    with s3_server() as server, reached_from_here(server):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield Home(tmp_path, SOURCES[request.param])


def name_of(key: bytes) -> bytes:
    """The name of a picture in the folder that archives were made of, without the name of its archive."""
    key = re.sub(rb"^(x-\d{5}-of-00003(\.[a-z.]+)?|photos\.[a-z]+)/", b"", key)
    return key.decode().encode("latin-1") if key.startswith("b/caf\xe9".encode()) else key


def by_name(output: Path) -> dict[bytes, dict[str, Any]]:
    """The rows by the names of their pictures, without keys and labels."""
    found = {}
    for row in rows(output).to_pylist():
        key = row.pop("key_bytes") or row["key"].encode()
        for column in ("key", "label", "label_ids"):
            row.pop(column, None)
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


def test_labels_are_those_of_the_source(home: Home) -> None:
    records = [record for partition in open_dataset(home.data_dir, **home.source.options).partitions
               for record in partition.manifest.records()]  # fmt: skip
    expected = {os.fsencode(name): label if home.source.has_labels else None for name, label in LABELS.items()}
    assert {name_of(record.key): record.label for record in records} == expected


@pytest.mark.parametrize("source", short_ones(("tar", "zip", "tfrecord", "parquet", "arrow", "csv"), ("zip", "parquet")))
def test_score_counts_the_labels_of_the_source(tmp_path: Path, source: str) -> None:
    """Numbers of classes of the network, or names of them."""
    home = Home(tmp_path, SOURCES[source])
    home.run()
    assert score_job(ScoreConfig(job=str(home.output), model_path=str(tmp_path / "models"), to=str(tmp_path / "score"))) == 0
    figures = json.loads((tmp_path / "score" / "score.json").read_text())
    found = [row for row in rows(home.output).to_pylist() if row["status"] == "ok"]
    names = CLASSES if source in ("parquet", "arrow") else models.LABELS
    right = [row["class_names"][0] == names[row["label"]] for row in found]
    assert (figures["top"]["1"]["right"], figures["rows"]["scored"]) == (sum(right), len(found))


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


@pytest.mark.parametrize("source", short_ones(ARCHIVES, ("zip", "parquet", "arrow")))
def test_bad_archives_stop_the_job_until_they_are_repaired(tmp_path: Path, source: str) -> None:
    """One sentence that names the archive; what there is stays, and the same command goes on afterwards."""
    home = Home(tmp_path, SOURCES[source])
    home.run()
    expected = rows(home.output)
    parts = sorted(home.output.glob("part-*.parquet"))
    parts[1].unlink()
    archive = sorted(path for path in (tmp_path / "data").iterdir() if not path.name.startswith("."))[-1]
    content, times = archive.read_bytes(), archive.stat().st_mtime_ns
    for damage in (lambda: os.truncate(archive, len(content) // 2), archive.unlink):
        damage()
        with pytest.raises(BulkinferError) as caught:
            home.run()
        assert archive.name in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(list(home.output.glob("part-*.parquet"))) == len(parts) - 1
        archive.write_bytes(content)
        os.utime(archive, ns=(times, times))
    assert home.run().records == len(files())
    assert rows(home.output).equals(expected)


@pytest.mark.parametrize("source", short_ones(ARCHIVES, ("zip", "parquet")))
def test_a_changed_archive_is_read_again(tmp_path: Path, source: str) -> None:
    home = Home(tmp_path, SOURCES[source])
    home.run()
    expected = rows(home.output)
    sorted(home.output.glob("part-*.parquet"))[1].unlink()
    for path in (tmp_path / "data").iterdir():
        if not path.name.startswith("."):
            os.utime(path, ns=(1, 1))
    assert home.run().records == len(files())
    assert rows(home.output).equals(expected)


@pytest.mark.parametrize("source", short_ones(ARCHIVES, ("tar",)))
def test_a_picture_that_is_gone_from_its_archive_is_one_error_row(tmp_path: Path, source: str) -> None:
    """Between a job and its resume; once it is back, it runs alone."""
    home, gone = Home(tmp_path, SOURCES[source]), list(files())[-1]  # the others stay in their archives
    home.run()
    expected = rows(home.output)
    for part in sorted(home.output.glob("part-*.parquet"))[1:]:
        part.unlink()
    home.source.write(tmp_path / "data", {name: data for name, data in files().items() if name != gone})
    result = home.run()
    assert (result.records, result.ok) == (len(files()), len(files()) - 4)
    found = by_name(home.output)[gone.encode()]
    assert (found["stage"], re.sub(r"^\S+ ", "", found["error"])) == (
        "read",
        "does not hold it: it is a link to no picture there, or sparse",
    )
    home.source.write(tmp_path / "data", files())
    assert retry(RetryConfig(output=str(home.output), stage=("read",))).ok == len(files()) - 3
    assert rows(home.output).equals(expected)
