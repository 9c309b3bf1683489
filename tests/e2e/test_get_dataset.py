"""bulkinfer get_dataset through the installed script, against a server on the loopback interface."""

from __future__ import annotations

import hashlib
import signal
import socket
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from tests.commands import command, cpu_seconds_of_children, run
from tests.data_sets import cifar10_python, deb, mnist_files, tar, zipped
from tests.forms import long, only_first
from tests.http_server import Site, serving

BODY = tar(cifar10_python())
MD5 = hashlib.md5(BODY).hexdigest()


def test_fetched_once_then_found(tmp_path: Path) -> None:
    with serving(Site(BODY, ["cut", "whole"])) as site:
        words = ["get_dataset", "cifar10", "--data_dir", "data", "--url", site.url("c.tar.gz"), "--checksum", MD5]
        first, second = run("bulkinfer", *words, cwd=tmp_path), run("bulkinfer", *words, cwd=tmp_path)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "attempt 1 of 5); trying again" in first.stdout
    assert first.stdout.endswith("cifar10: data/cifar-10-batches-py\nnext: bulkinfer train --dataset cifar10 --data_dir data\n")
    assert second.stdout.startswith("cifar10 is there already: data/cifar-10-batches-py (--force fetches it again)\n")
    assert len(site.requests) == 2
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-py"]


def test_the_folder_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "set.deb").write_bytes(deb({f"usr/share/datasets/{name}": data for name, data in mnist_files().items()}))
    words = ["get_dataset", "--dataset=Fashion-MNIST", "--url", "set.deb", "--checksum", "none"]
    done = run("bulkinfer", *words, cwd=tmp_path, env={"DATA_DIR": str(tmp_path / "sets")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sets" / "fashion_mnist" / "train-labels-idx1-ubyte.gz").is_file()


@long
def test_two_at_once_fetch_once(tmp_path: Path) -> None:
    with serving(Site(BODY, ["stalled"])) as site:
        words = ["get_dataset", "cifar10", "--data_dir", "data", "--url", site.url("c.tar.gz"), "--checksum", MD5]
        started = [subprocess.Popen(command("bulkinfer", *words), cwd=tmp_path, stdout=subprocess.PIPE, text=True)]
        deadline = time.monotonic() + 300
        while not site.requests and time.monotonic() < deadline:
            time.sleep(0.02)
        started.append(subprocess.Popen(command("bulkinfer", *words), cwd=tmp_path, stdout=subprocess.PIPE, text=True))
        assert started[1].stdout is not None
        assert started[1].stdout.readline() == "waiting for another process that fetches cifar10\n"
        site.script[:] = ["whole"]
        site.over.set()
        told = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert "cifar10 is there now: data/cifar-10-batches-py" in told[1]
    assert sum(asked == "" for _, asked, _ in site.requests) == 1


@long
def test_a_killed_fetch_is_continued(tmp_path: Path) -> None:
    body = tar(cifar10_python(200), "")
    with serving(Site(body, ["stalled", "whole"])) as site:
        words = ["get_dataset", "cifar10", "--data_dir", "data", "--url", site.url("c.tar"), "--checksum", "none"]
        part = tmp_path / "data" / ".cifar10-c.tar.part"
        with subprocess.Popen(command("bulkinfer", *words), cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 300
            while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
                time.sleep(0.02)
            process.kill()
        have = part.stat().st_size
        assert 0 < have < len(body)
        done = run("bulkinfer", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert site.requests[-1] == ("/c.tar", f"bytes={have - 1}-", len(body) - have + 1)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-py"]


def test_failures_are_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/c.tar.gz"
    evil = tar({**cifar10_python(), "../evil": b""})
    with serving(Site(bodies={"/c.tar.gz": BODY, "/evil.tar.gz": evil})) as site:
        cases = [
            ([nobody], 1, "cannot be reached ([Errno 111] Connection refused); bring c.tar.gz here by other means"),
            ([site.url("gone.tar.gz")], 1, "the server answered 404 Not Found"),
            ([site.url("c.tar.gz")], 1, "is not the file asked for: its md5 is"),
            ([site.url("evil.tar.gz"), "--checksum", "none"], 1, "is not safe to unpack"),
            (["gone.zip"], 2, "--url gone.zip: no such file or folder"),
        ]
        for words, code, reason in cases:
            done = run("bulkinfer", "get_dataset", "cifar10", "--data_dir", "data", "--url", *words, cwd=tmp_path)
            assert done.returncode == code, done.stderr
            assert done.stderr.startswith("bulkinfer get_dataset: ")
            assert done.stderr.count("\n") == 1
            assert reason in done.stderr
            assert not list(tmp_path.rglob("*batch*"))
    done = run("bulkinfer", "get_dataset", cwd=tmp_path)
    assert done.returncode == 2
    assert ", as in: bulkinfer get_dataset cifar10" in done.stderr


@long
def test_coco_goes_on_to_partition_dataset(tmp_path: Path) -> None:
    files = {"val2014/COCO_val2014_000000000042.jpg": b"\xff\xd8\xff", "annotations/instances_val2014.json": b"{}"}
    with serving(Site(zipped(files))) as site:
        done = run("bulkinfer", "get_dataset", "coco_val2014", "--url", site.url("coco.zip"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last == (
        "next: partition_dataset --data_dir data/coco_val2014/val2014 "
        "--annotations data/coco_val2014/annotations/instances_val2014.json"
    )


def test_c55_a_bomb_costs_neither_memory_nor_disk(tmp_path: Path) -> None:
    """A zip that unpacks to a thousand times its size, given as a file and served: refused at once, with one sentence."""
    size_bytes = 1 << 28
    bomb = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
        packed.open("cifar-10-batches-py/data_batch_1", "w", force_zip64=True) as member,
    ):
        for _ in range(size_bytes >> 20):
            member.write(bytes(1 << 20))
    with serving(Site(bomb.read_bytes())) as site:
        for url in ("bomb.zip", site.url("bomb.zip")):
            words = ["get_dataset", "cifar10", "--data_dir", "data", "--checksum", "none", "--url", url]
            before = cpu_seconds_of_children()
            done = run("bulkinfer", *words, cwd=tmp_path)
            assert cpu_seconds_of_children() - before < 10
            assert done.returncode == 1
            assert f"{url} would unpack to {size_bytes:,} bytes or more, and " in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("number", only_first([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
def test_c55_a_signal_leaves_no_work_folder(number: signal.Signals, tmp_path: Path) -> None:
    with serving(Site(BODY, ["stalled"])) as site:
        words = ["get_dataset", "cifar10", "--data_dir", "data", "--url", site.url("c.tar.gz"), "--checksum", "none"]
        told = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command("bulkinfer", *words), **told) as process:  # type: ignore[call-overload]
            deadline = time.monotonic() + 300
            while not (site.requests and list((tmp_path / "data").glob("_tmp-*"))) and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(number)
            _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert len(errors.splitlines()) == 1
    assert not list((tmp_path / "data").glob("_tmp-*"))


def test_c55_a_signal_leaves_no_half_weights(tmp_path: Path) -> None:
    with serving(Site(BODY, ["stalled"])) as site:
        words = ["--model_name", "resnet18", "--weights", site.url("w.pth"), "--model_path", "models"]
        with subprocess.Popen(command("get_model", *words), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 300
            while not site.requests and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert not list((tmp_path / "models").rglob("_tmp-*"))
