"""get_model where fetching weights goes wrong: killed half-way, cut by the server, damaged in the cache, offline."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import torch
from bulkinfer import zoo

from tests.commands import command, run
from tests.forms import long
from tests.http_server import Site, serving

pytestmark = long

NETWORK = "squeezenet1_1"
FILE = "mine.pth"  # no hash in its name: the one of the first use counts


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of weights as torch saves them, 5 MB."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("weights") / FILE
    torch.save(zoo.build(NETWORK).state_dict(), path)
    return path.read_bytes()


def words(site: Site) -> list[str]:
    return ["--model_name", NETWORK, "--batch_size", "1", "--weights", site.url(FILE)]


def cached(home: Path) -> Path | None:
    """The file under its final name."""
    return next(home.glob(f"models/.weights/*_{FILE}"), None)


def temporaries(home: Path) -> list[Path]:
    return list(home.glob("models/.weights/_tmp-*"))


def test_b65_a_killed_download_leaves_nothing_under_the_final_name(weights: bytes, tmp_path: Path) -> None:
    """Then the cached file is cut in half: it is named and fetched again once, and without a server a clear message."""
    with serving(Site(weights, ["stalled", "whole"])) as site:
        process = subprocess.Popen(command("get_model", *words(site)), cwd=tmp_path, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while sum(path.stat().st_size for path in temporaries(tmp_path)) < 100_000 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert temporaries(tmp_path)
        assert cached(tmp_path) is None

        done = run("get_model", *words(site), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "exported and checked" in done.stdout
        assert not temporaries(tmp_path)
        path = cached(tmp_path)
        assert path is not None
        assert path.read_bytes() == weights

        requests = len(site.requests)
        path.write_bytes(weights[: len(weights) // 2])
        done = run("get_model", *words(site), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{path.relative_to(tmp_path)} is damaged: it is cut short ({len(weights) // 2:,} bytes" in done.stdout
        assert len(site.requests) == requests + 1
        assert path.read_bytes() == weights
        assert "model_1.onnx is already there" in done.stdout

    path.write_bytes(weights[: len(weights) // 2])
    done = run("get_model", *words(site), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{path.relative_to(tmp_path)} is damaged: it is cut short" in done.stdout
    assert f"place the file at {path}, or use --weights random" in done.stderr


def test_b65_a_server_that_always_closes_early_is_one_sentence(tmp_path: Path) -> None:
    with serving(Site(b"x" * 1000, ["cut"], etag="")) as site:
        done = run("get_model", *words(site), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("get_model: ")
    assert done.stderr.count("\n") == 1
    assert "the transfer ended after 500 of 1,000 bytes (attempt 5 of 5)" in done.stderr or "broke off" in done.stderr
    assert cached(tmp_path) is None
    assert not temporaries(tmp_path)
