"""bulkinfer serve and a client of others: Triton's, from PyPI, unchanged; and bulkinfer request against such servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.launch.launcher import launch
from bulkinfer.serve.rpc.schema import _MESSAGES, message

from tests import pictures
from tests.commands import records, run_installed
from tests.forms import long
from tests.launches import config_of
from tests.made_once import made_once
from tests.models import write_tiny_model
from tests.rules.source import ROOT
from tests.serving import ON_CPU, Server, free_port, serving

pytestmark = long

CLIENTS = ROOT / "tests" / "clients"
BATCH = 6
INTERPRETER = "env/bin/python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with Triton's client."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(folder / INTERPRETER)]
        words = ["install", "--no-compile", "-r", str(CLIENTS / "requirements.txt")]
        subprocess.run([*pip, *words], check=True, stdout=subprocess.DEVNULL)

    return made_once(tmp_path_factory, "triton-client", make) / INTERPRETER


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network tiny, photographs, and the rows that infer_launch makes of them."""
    folder = tmp_path_factory.mktemp("clients")
    config = config_of(folder, photos=0, engine="inline", save=("topk", "logits", "embedding"), batch_size=BATCH)
    write_tiny_model(folder / "models", batch_sizes=(BATCH,))
    pictures.write_files(Path(config.data_dir), {f"{n:03d}.jpg": pictures.jpeg(90 + n, 70, n) for n in range(60)})
    assert launch(config).exit_code == 0
    return folder


@pytest.fixture
def server(home: Path) -> Iterator[Server]:
    with serving(home, "tiny", *ON_CPU) as running:
        yield running


def triton(python: Path, what: str, home: Path, server: Server) -> subprocess.Popen[str]:
    words = [str(python), str(CLIENTS / "triton_client.py"), what, str(home), str(server.rest), str(server.grpc)]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def result(client: subprocess.Popen[str]) -> Any:
    out, errors = client.communicate(timeout=300)
    assert client.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


def expected(home: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The rows, as columns in the order of the names."""
    rows = records(home / "out")
    return {name: np.array([rows[key][name] for key in sorted(rows)]) for name in next(iter(rows.values()))}


def test_it_finds_what_it_asks_for(python: Path, home: Path, server: Server) -> None:
    found = result(triton(python, "facts", home, server))
    assert found["rest"] == found["grpc"]
    assert (found["rest"]["live"], found["rest"]["ready"], found["rest"]["name"]) == (True, True, "bulkinfer")
    assert found["rest"]["model_ready"] == [True, True, False]
    assert found["rest"]["inputs"] == ["images", "pictures"]
    assert found["rest"]["outputs"] == [
        ["logits", "FP32"], ["embedding", "FP32"], ["class_ids", "INT32"], ["scores", "FP32"], ["class_names", "BYTES"],
    ]  # fmt: skip


def test_requests_of_one_to_three_batches(python: Path, home: Path, server: Server) -> None:
    result(triton(python, "batches", home, server))
    got, rows = dict(np.load(home / "got.npz")), expected(home)
    for key, values in got.items():
        if key == "images":
            continue
        protocol, kind, count, name = key.split()
        assert len(values) == int(count)
        assert np.array_equal(values, got[f"grpc {kind} 18 {name}"][: int(count)]), key
        if kind == "p":
            same = rows[name][: int(count)]
            assert np.array_equal(values, same.astype(values.dtype) if name != "class_names" else same), (key, protocol)


def test_a_thousand_requests_of_eight_clients_get_the_rows_of_a_job(python: Path, home: Path, server: Server) -> None:
    assert result(triton(python, "many", home, server)) == {"answered": 1000, "refused": []}
    check_many(home)
    assert server.stop() == 0
    assert "1000 requests accepted: 1000 answered, 0 given up by clients, 0 lost" in server.said


def check_many(home: Path) -> None:
    rows = expected(home)
    for key, values in np.load(home / "got.npz").items():
        first, count, _, name = key.split()
        same = rows[name][int(first) : int(first) + int(count)]
        assert np.array_equal(values, same.astype(values.dtype)), key


def test_a_signal_in_the_middle_loses_none_that_was_accepted(python: Path, home: Path, server: Server) -> None:
    client = triton(python, "endless", home, server)
    assert client.stdout is not None
    assert client.stdout.readline() == "half way\n"
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    found = result(client)
    assert found["answered"] >= 200
    assert len(found["refused"]) == 8, "each client was refused, and stopped"
    assert f"{found['answered']} requests accepted: {found['answered']} answered, 0 given up by clients, 0 lost" in server.said
    check_many(home)


def test_messages_are_those_of_triton(python: Path, home: Path, server: Server) -> None:
    theirs = result(triton(python, "schema", home, server))
    for name in _MESSAGES:
        ours = {field.name: [field.number, field.type, field.is_repeated] for field in message(name).DESCRIPTOR.fields}
        assert ours == {field: theirs[f"inference.{name}"][field] for field in ours}, name
        assert len(ours) == len(theirs[f"inference.{name}"]), name


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


LOADS = {  # of the guide, each with what it says of its requests when each thread sends 64 pictures
    "--config resnet50_infer_bs16 --dataset-path photos --batch-size 8 --num-threads 32 --serving-bin-path server": (
        "256 requests of 8, 32 x 64 pictures (60 of the 60 pictures", "one request at a time each"
    ),
    "--config resnet50_infer_bs1 --num-threads 16 --use-async": (
        "1024 requests of 1, 16 x 64 pictures (16 random tensors", "8 requests in flight each"
    ),
    "--config resnet50_infer_bs32 --batch-size 32 --num-threads 16 --use-async": (
        "32 requests of 32, 16 x 64 pictures (16 random tensors", "8 requests in flight each"
    ),
    "--config resnet50_infer_bs1 --num-threads 1 --verbose": (
        "64 requests of 1, 1 x 64 pictures (16 random tensors", "one request at a time each"
    ),
}  # fmt: skip


@pytest.mark.parametrize("load", LOADS)
def test_loads_of_the_reference_by_their_names(home: Path, port: int, load: str) -> None:
    """As its users type them, but for a small network of that name."""
    write_tiny_model(home / "models", "resnet50", batch_sizes=(1, 16, 32))
    words = (*load.split(), "--port", port, "--num-images", 64, *ON_CPU)
    done = run_installed("bulkinfer", "request", *words, cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"model: resnet50, batch size {load.split('_bs')[1].split()[0]}" in done.stdout
    assert ("note: --serving-bin-path: the server is bulkinfer serve" in done.stdout) == ("--serving-bin-path" in load)
    assert done.stdout.count(" picture(s), ") == (64 if "--verbose" in load else 0)
    for words_said in LOADS[load]:
        assert words_said in done.stdout


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_running_server_is_measured_and_left(home: Path, server: Server, protocol: str) -> None:
    port = {"rest": server.rest, "grpc": server.grpc}[protocol]
    names = expected(home)["class_names"][:, 0]
    labels = "".join(f"{index:03d}.jpg,{name if index % 4 else 'other'}\n" for index, name in enumerate(names))
    (home / "labels.csv").write_text(labels)
    words = (
        "tiny",
        "--protocol",
        protocol,
        "--port",
        port,
        "--data_dir",
        "photos",
        "--labels",
        "labels.csv",
        "--batch_size",
        20,
    )
    more = ("--num_images", 60, "--num_threads", 3, "--use_async", "--rate", 100, "--to", f"{protocol}.csv")
    done = run_installed("bulkinfer", "request", *words, *more, cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "none listens" not in done.stdout
    names_, values = (home / f"{protocol}.csv").read_text().splitlines()
    figures = dict(zip(names_.split(","), values.split(","), strict=False))
    assert (figures["requests"], figures["pictures"], figures["labelled"], float(figures["top1"])) == ("9", "180", "180", 0.75)
    assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_a_server_that_refuses_is_reported(home: Path, server: Server) -> None:
    done = run_installed("bulkinfer", "request", "other", "--port", server.grpc, cwd=home)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "does not serve other: NOT_FOUND: no network 'other' is served; there are tiny" in done.stderr
    done = run_installed("bulkinfer", "request", "tiny", "--port", server.rest, cwd=home)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"what listens at 127.0.0.1:{server.rest} gives no answer over grpc" in done.stderr
    done = run_installed("bulkinfer", "request", "tiny", "--host", "localhost", "--tls_ca", __file__, cwd=home)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "holds no certificates" in done.stderr
