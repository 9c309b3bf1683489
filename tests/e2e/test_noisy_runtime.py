"""A runtime that writes to stderr when it is imported, as onnxruntime does where it finds no GPU it expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pictures
from tests.commands import run
from tests.forms import long
from tests.models import write_tiny_model
from tests.runtime_in_front import runtime_in_front

NOISE = "device_discovery.cc: ReadFileContents failed to open /sys/class/drm/card0/device/vendor"
NOISY = f"import os; os.write(2, b'{NOISE}\\n'); os.write(1, b'{NOISE}\\n')"
LAUNCH = ("--model_name", "tiny", "--data_dir", "photos", "--batches_per_step", 1, "--device", "cpu", "--num_devices", 4)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models")
    files = {f"{n:02d}.png": pictures.encode(pictures.solid()) for n in range(60)}
    pictures.write_files(tmp_path / "photos", files)
    return tmp_path


def test_b40_what_the_runtime_writes_goes_to_the_logs_of_the_workers(place: Path) -> None:
    env = runtime_in_front(place / "front", before=NOISY)
    found = run("infer_launch", *LAUNCH, "--output", "out", cwd=place, env=env)
    assert (found.returncode, found.stderr) == (0, "")
    assert NOISE not in found.stdout
    assert "records: 60 = 60 ok + 0 errors" in found.stdout.splitlines()
    noisy = [path for path in place.glob("logs/latest/worker-*.log") if NOISE in path.read_text()]
    assert noisy


@long
def test_b40_the_last_lines_are_quoted_when_workers_fail(place: Path) -> None:
    env = runtime_in_front(place / "front", before=f"{NOISY}; os.write(2, b'no such instruction\\n'); os._exit(4)")
    found = run("infer_launch", *LAUNCH, "--output", "out", cwd=place, env=env)
    assert found.returncode == 1
    told = found.stderr.splitlines()[-1]
    assert "ended by exit code 4; the end of its log: " in told
    assert NOISE in told
    assert told.endswith("no such instruction")
    assert found.stderr.count(NOISE) == told.count(NOISE)
    assert NOISE not in found.stdout
