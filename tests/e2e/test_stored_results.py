"""Results in a bucket: the rows of a folder, whatever fails on the way, and every command that reads or changes a job."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import pictures
from tests.forms import long
from tests.models import write_tiny_model
from tests.object_store import BUCKET, KEY, SECRET, Gate, Server, proxy_before, s3_server
from tests.runtime_in_front import held_after, runtime_in_front
from tests.store_place import LAUNCH, Place, kill_worker_and_launcher

OUT = f"s3://{BUCKET}/out"
OWN = ["out/.bulkinfer/_job.json", "out/.bulkinfer/status.json"]
ONE_BATCH = ("--batches_per_step", 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


def made(folder: Path, server: Server, files: dict[str, bytes]) -> None:
    """A tiny network, and pictures in a folder and in the bucket, which holds nothing else."""
    server.remove_all()
    write_tiny_model(folder / "models", batch_sizes=(6,))
    pictures.write_files(folder / "photos", files)
    server.put_folder(folder / "photos", "photos")


@pytest.fixture
def place(server: Server, tmp_path: Path) -> Iterator[Place]:
    files = {f"{number % 3}/{number:03d}.jpg": pictures.jpeg(100 + number, 90, number) for number in range(20)}
    made(tmp_path, server, files | {"2/empty.jpg": b""})
    with proxy_before(server.url) as proxy:
        yield Place(tmp_path, server, proxy)


def results(server: Server, prefix: str = "out") -> dict[str, bytes]:
    """The objects below a prefix, but for the pictures."""
    keys = [key for key in server.all_keys() if key.startswith(f"{prefix}/")]
    return {key: server.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def stored_rows(server: Server, prefix: str = "out") -> pa.Table:
    """The rows of all parts below a prefix, in order, without the metadata of the parts."""
    parts = {key: data for key, data in results(server, prefix).items() if key.endswith(".parquet")}
    return pa.concat_tables(
        [pq.read_table(io.BytesIO(parts[key])).replace_schema_metadata() for key in sorted(parts) if "/." not in key]
    )


def local_rows(output: Path) -> pa.Table:
    """The same of a folder."""
    return pa.concat_tables([pq.read_table(path).replace_schema_metadata() for path in sorted(output.glob("part-*.parquet"))])


def is_as_local(place: Place, own: Sequence[str] = OWN) -> None:
    """The rows of the bucket are those of a local run in all columns; nothing but parts and own files lies there."""
    place.run(*LAUNCH, "--data_dir", "photos", "--output", "local", code=3)
    assert stored_rows(place.server).equals(local_rows(place.folder / "local"))
    assert [key for key in results(place.server) if re.search(r"/part-\d{5}-\d{10}-\d{10}\.parquet$", key) is None] == [*own]
    uploads = place.server.client.list_multipart_uploads(Bucket=BUCKET)
    assert "Uploads" not in uploads
    assert not [name for name in os.listdir(place.folder) if name.startswith("s3")]


def test_the_rows_in_a_bucket_are_those_of_a_folder(place: Place) -> None:
    printed = place.run(*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", OUT, code=3)
    assert f"results: {OUT}\n" in printed
    assert f"bulkinfer retry {OUT}\n" in printed
    assert printed.endswith(f"next: bulkinfer show {OUT}\n")
    is_as_local(place)
    printed = place.run("bulkinfer", "verify", OUT)
    assert "records: 21, rows: 20 ok + 1 errors (1 at decode) in 4 parts" in printed
    assert "sound: every record has one row" in printed
    assert not [key for key, data in results(place.server).items() if KEY.encode() in data or SECRET.encode() in data]


@long
def test_a_finished_job_is_found_without_its_logs_and_not_read_again(place: Place) -> None:
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", OUT)
    place.run(*words, code=3)
    shutil.rmtree(place.folder / "logs")
    begun = len(place.proxy.requests)
    assert "resume: 21 of 21 records are done, 0 to do" in place.run(*words, code=3)
    read = [line for line in place.proxy.requests[begun:] if line.startswith(b"GET") and b"/part-" in line]
    assert not [
        line for line in read if b"0000000006-" in line or b"-0000000018." in line
    ]  # those that show rows are the others
    names = sorted(key for key in results(place.server) if "/part-" in key)
    place.server.put(names[0], results(place.server)[names[1]])  # the tag shows that it was changed
    place.server.put(names[2], b"PAR1")
    printed = place.run("bulkinfer", "verify", OUT, code=1)
    assert printed.count("run the job again, it sets the file aside") == 2
    printed = place.run(*words, code=3)
    assert printed.count(f"set aside as {OUT}/.bulkinfer/_part-00000-") == 2
    assert len([key for key in results(place.server) if key.endswith(".parquet.damaged")]) == 2
    assert "sound" in place.run("bulkinfer", "verify", OUT)
    refused = place.sentence(*LAUNCH, "--top_k", 2, *words[len(LAUNCH) :], code=2)
    assert f"{OUT} holds the results of another job; it differs in top_k (5 there, 2 now)" in refused
    place.run(*LAUNCH, "--top_k", 2, *words[len(LAUNCH) :], "--overwrite", code=3)
    assert not [key for key in results(place.server) if key.endswith(".damaged")]


@long
def test_a_second_launcher_is_refused(place: Place) -> None:
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", OUT, *ONE_BATCH)
    go = place.folder / "front" / "go"
    process = place.start(*words, **runtime_in_front(go.parent, after=held_after(0, go)))
    while not any(b"PUT" in line and b"_job.json" in line for line in place.proxy.requests):
        assert process.poll() is None
        time.sleep(0.01)
    refused = place.sentence(*words, "--log_path", "elsewhere", code=1)
    assert re.search(
        rf"{OUT} is in use by a launcher on .*, pid {process.pid}, .*: wait for it, or give another --output", refused
    )
    assert place.run("bulkinfer", "watch", OUT, "--once", code=4)
    assert "running" in place.run("bulkinfer", "jobs")
    assert "nothing is removed" in place.sentence("bulkinfer", "clean", OUT, "--yes", code=1)
    go.touch()
    process.communicate(timeout=300)
    assert process.returncode == 3
    is_as_local(place)


@long
def test_commands_that_read_a_job(place: Place) -> None:
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--labels", "folders")
    place.run(*words, "--output", OUT, code=3)
    place.run(*words, "--output", "local", code=3)

    def same(*command: object) -> str:
        """What a command prints is the same for both, but for the names."""
        printed = [
            place.run("bulkinfer", *(output if word == "JOB" else word for word in command)) for output in (OUT, "local")
        ]
        assert printed[0].replace(OUT, "local") == printed[1]
        return printed[0]

    assert "0/000.jpg" in same("show", "JOB")
    assert "empty file" in same("show", "JOB", "--errors")
    assert "top-1" in same("score", "JOB", "--to", "-")
    assert same("rows", "JOB", "--format", "csv", "--to", "-").count("\n") == 22 + 1
    place.run("bulkinfer", "rows", OUT, "--format", "parquet", "--to", "copy.parquet")
    assert "same best class: 100" in place.run("bulkinfer", "compare", OUT, "local", "--to", "compared")
    assert "report.html" in place.run("bulkinfer", "report", OUT, "--to", "report.html")
    assert "is ok in more than one folder" not in place.run("bulkinfer", "verify", OUT)
    assert "20 pictures are ok in more than one folder" in place.run("bulkinfer", "verify", OUT, "local", code=1)
    printed = place.run("bulkinfer", "jobs")
    assert (printed.count("finished"), printed.count(OUT)) == (2, 1)
    assert "finished" in place.run("bulkinfer", "watch", OUT, code=3)
    printed = place.run(*words, "--skip_done", OUT, "--output", f"s3://{BUCKET}/rest", code=3)
    assert f"20 records have ok rows in {OUT}" in printed
    refused = place.sentence("bulkinfer", "rows", OUT, "--to", f"s3://{BUCKET}/x.csv", code=2)
    assert f"--to s3://{BUCKET}/x.csv: such files are written to this machine alone" in refused
    assert "removed" in place.run("bulkinfer", "clean", OUT, "--yes")
    assert results(place.server) == {}
    assert "holds no _job.json" in place.sentence("bulkinfer", "show", OUT, code=2)
    assert not [name for name in os.listdir(place.folder) if name.startswith("s3")]


@long
def test_error_rows_are_run_again(place: Place) -> None:
    place.run(*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", OUT, *ONE_BATCH, code=3)
    place.server.put("photos/2/empty.jpg", pictures.jpeg(64, 48, 7))
    place.proxy.fault = lambda _number, request: "expired" if b"_retry/part-" in request.partition(b"\r\n")[0] else ""
    assert "have expired" in place.run("bulkinfer", "retry", OUT, code=1)
    place.proxy.fault = lambda _number, request: "cut" if b"PUT" in request[:3] and b"/part-" in request[:80] else ""
    printed = place.run("bulkinfer", "retry", OUT)
    assert "retry: 1 error row is ok now, 0 failed again" in printed
    place.proxy.fault = lambda _number, _request: ""
    assert "rows: 21 ok + 0 errors" in place.run("bulkinfer", "verify", OUT)
    assert not [key for key in results(place.server) if "_retry" in key or "damaged" in key]
    shutil.copyfile(place.folder / "photos" / "0" / "000.jpg", place.folder / "unused.jpg")
    (place.folder / "photos" / "2" / "empty.jpg").write_bytes(pictures.jpeg(64, 48, 7))
    place.run(*LAUNCH, "--data_dir", "photos", "--output", "repaired")
    assert stored_rows(place.server).equals(local_rows(place.folder / "repaired"))


@long
def test_shards_in_a_bucket(place: Place) -> None:
    words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", OUT, *ONE_BATCH)
    for shard in ("1/2", "2/2"):
        place.run(*words, "--shard", shard, code=0 if shard == "1/2" else 3)
    assert "sound" in place.run("bulkinfer", "verify", OUT)
    refused = place.sentence("bulkinfer", "merge", OUT, code=2)
    assert "shards are merged in folders, by links" in refused
    assert f"give one of them, such as {OUT}/shard-1-of-2" in place.sentence("bulkinfer", "show", OUT, code=2)
    assert f"--output {OUT} holds the shards of a job" in place.sentence(*words, code=2)
    place.run("bulkinfer", "clean", OUT, "--yes")
    assert results(place.server) == {}


REFUSALS = [
    ((), "https://host/out", 2, "--output https://host/out: a web server takes no results: give a bucket"),
    (("--log_path", OUT), "out", 2, f"--log_path {OUT}: logs lie on this machine: give a folder"),
    ((), "s3://nobucket/out", 2, "the bucket s3://nobucket does not exist"),
    ((), f"s3://{BUCKET}/photos", 2, f"the pictures in s3://{BUCKET}/photos lie in it"),
    ((), f"s3://ann:hidden@{BUCKET}/out", 2, "holds a user or password"),
]


@long
@pytest.mark.parametrize(("more", "output", "code", "words"), REFUSALS)
def test_what_cannot_be_is_one_sentence(place: Place, more: tuple[str, ...], output: str, code: int, words: str) -> None:
    command = (*LAUNCH, *more, "--data_dir", f"s3://{BUCKET}/photos", "--output", output)
    assert words in place.sentence(*command, code=code)
    assert sorted(os.listdir(place.folder)) in (["models", "photos"], ["logs", "models", "photos"])


def faulty(number: int, _request: bytes) -> str | float:
    """Of every few requests some fail in a way that passes: lost answers, resets, 503, slow answers."""
    return {3: "503", 5: "reset", 8: "cut", 10: 0.1}.get(number % 13, "")


@long
def test_a_thousand_pictures_through_faults_and_kills(server: Server, tmp_path: Path) -> None:
    files = {f"{number % 7}/{number:04d}.jpg": pictures.jpeg(40 + number % 50, 30, number) for number in range(999)}
    made(tmp_path, server, files | {"broken.jpg": pictures.HTML_PAGE})
    with proxy_before(server.url) as proxy:
        place = Place(tmp_path, server, proxy)
        words = (*LAUNCH, "--data_dir", f"s3://{BUCKET}/photos", "--output", OUT, "--batches_per_step", 5)
        for number_of_parts in (4, 12):  # of this launch
            gate = Gate(lambda request: request.startswith(b"PUT") and b"/out/part-" in request[:80], number_of_parts)
            proxy.fault = lambda number, request, gate=gate: faulty(number, request) if gate.lets(request) else "reset"
            kill_worker_and_launcher(place.start(*words), gate, 2 * number_of_parts)
        proxy.fault = faulty
        shutil.rmtree(tmp_path / "logs")  # as on another machine
        printed = place.run(*words, code=3)
        assert re.search(r"resume: \d+ of 1000 records are done", printed)
        proxy.fault = lambda _number, _request: ""
        is_as_local(place)
        printed = place.run("bulkinfer", "verify", OUT)
        assert "records: 1000, rows: 999 ok + 1 errors" in printed
        assert "sound: every record has one row" in printed


@long
def test_credentials_that_expire_end_the_launch_and_it_goes_on(place: Place) -> None:
    words = (*LAUNCH, "--data_dir", "photos", "--output", OUT, *ONE_BATCH)
    place.proxy.fault = lambda _number, request: "expired" if b"/out/part-" in request[:80] else ""
    process = place.start(*words)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 1, stdout + stderr
    assert f"the credentials for s3://{BUCKET} have expired (ExpiredToken): renew them" in stderr
    place.proxy.fault = lambda _number, _request: ""
    place.run(*words, code=3)
    is_as_local(place, own=[*OWN[:1], "out/.bulkinfer/_times.parquet", *OWN[1:]])
    assert json.loads(results(place.server)["out/.bulkinfer/_job.json"])["complete"] is True
