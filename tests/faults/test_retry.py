"""A retry whose launcher is killed: the output stays sound, and the next retry ends it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands import command, records, run
from tests.launches import write_photos
from tests.models import write_tiny_model

SITECUSTOMIZE = """
import time, PIL.Image
plain = PIL.Image.open
def slow(fp, *args, **options):
    time.sleep(0.1)
    return plain(fp, *args, **options)
PIL.Image.open = slow
"""


@pytest.mark.parametrize("staged", [0, 2])
def test_a_killed_retry_is_run_again(tmp_path: Path, staged: int) -> None:
    """Killed when so many parts lie in _retry."""
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 60)
    good = {path: path.read_bytes() for path in sorted((tmp_path / "photos").iterdir())[::2]}
    for path in good:
        path.write_bytes(b"no picture")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    words = ["--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32", "--output", "out"]
    assert run("infer_launch", *words, "--num_devices", 2, "--batches_per_step", 2, cwd=tmp_path).returncode == 3
    before = records(tmp_path / "out")
    for path, data in good.items():
        path.write_bytes(data)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    retry = command("bulkinfer", "retry", "out", "--num_devices", 1)
    staging = tmp_path / "out" / "_retry"
    with subprocess.Popen(retry, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (staging / "_job.json").exists() or len(list(staging.glob("part-*"))) < staged:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0
    assert records(tmp_path / "out") == before
    found = run("bulkinfer", "retry", "out", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    gained = [int(number) for number in re.findall(r"retry: (\d+) error rows are ok now", found.stdout)]
    assert sum(gained) == 30
    assert gained[0] >= 6 * staged
    after = records(tmp_path / "out")
    assert all(row["status"] == "ok" and row["class_names"][0] in key for key, row in after.items())
    assert {key for key in after if after[key] != before[key]} == {path.name for path in good}
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0
    assert not staging.exists()
