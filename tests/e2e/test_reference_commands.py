"""The reference system's own three commands, as its users type them, on the default network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import pictures
from tests.commands import run, summary
from tests.forms import long

pytestmark = long

LINE = re.compile(
    r"Total [\d.]+ sec\.   Preprocessing [\d.]+ sec \([\d.]+%\)\.   Compute [\d.]+ sec \([\d.]+%\)\.   [\d.]+ images/sec\."
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    pictures.write_files(folder / "photos", {f"{i}.jpg": pictures.jpeg(seed=i) for i in range(20)})
    made = run("get_model", "--batch-size", 6, "--weights", "random", cwd=folder, timeout_s=600)
    assert made.returncode == 0, made.stderr
    split = run("partition_dataset", "--partitions", 8, cwd=folder, env={"DATA_DIR": "photos"})
    assert split.returncode == 0, split.stderr
    return folder


def test_eight_devices_synthetic_twice(place: Path) -> None:
    for _ in range(2):
        found = run("infer_launch", "--num_ipus", 8, "--synthetic", cwd=place, timeout_s=600)
        assert found.returncode == 0, found.stdout + found.stderr
        lines = [line for line in found.stdout.splitlines() if line.startswith("Total ")]
        assert lines
        assert all(LINE.fullmatch(line) for line in lines)
        assert re.search(r"^total: \d+ pictures in [\d.]+ sec: [\d.]+ images/sec", found.stdout, re.MULTILINE)
        assert len(list((place / "logs" / "latest").glob("worker-*.log"))) == 8
        for log in (place / "logs" / "latest").glob("worker-*.log"):
            assert any(LINE.fullmatch(line) for line in log.read_text().splitlines())
        told = summary(place / "logs")
        assert told["weights"]["source"] == "random"
        assert sum(told["peak_memory_bytes"].values()) < 12 << 30
    assert len([path for path in (place / "logs").iterdir() if not path.is_symlink()]) == 2


def test_eight_devices_on_pictures(place: Path) -> None:
    found = run("infer_launch", "--num_ipus", 8, cwd=place, timeout_s=600)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "records: 20 = 20 ok + 0 errors" in found.stdout
    assert "the weights are random" in found.stderr


def test_another_batch_size_costs_less_than_a_megabyte(place: Path) -> None:
    folder = place / "models" / "resnext101_32x4d"
    before = {path.name: path.stat().st_size for path in folder.iterdir()}
    made = run("get_model", "--batch_size", 16, "--weights", "random", cwd=place, timeout_s=600)
    assert made.returncode == 0, made.stderr
    after = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert {"model_16.onnx", "model_6.onnx"} <= set(after)
    assert sum(after.values()) - sum(before.values()) < 1_000_000
