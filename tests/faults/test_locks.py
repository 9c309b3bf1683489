"""A launcher that loses its output while it runs: it stops with one sentence, and publishes nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from bulkinfer.files.own_folder import own_folder

from tests.commands import command, run
from tests.faults.slow_site import slow_site
from tests.launches import write_photos
from tests.models import write_tiny_model


def test_a_launcher_that_has_lost_its_lock_stops(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 90)
    words = ["--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32", "--num_devices", 1,
             "--output", "out", "--batches_per_step", 1]  # fmt: skip
    environment = os.environ | slow_site(tmp_path)
    with subprocess.Popen(command("infer_launch", *words), cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
                          stdout=subprocess.DEVNULL) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out").glob("part-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        lock = own_folder(tmp_path / "out") / "_lock.json"
        taken = json.loads(lock.read_text()) | {"host": "elsewhere", "token": "theirs"}
        (tmp_path / "theirs").write_text(json.dumps(taken))
        os.rename(tmp_path / "theirs", lock)
        there = len(list((tmp_path / "out").glob("part-*")))
        _, told = process.communicate(timeout=300)
    assert process.returncode == 1
    assert told.count("\n") == 1
    assert "_lock.json was lost: its holder has ended, or did not renew it for 60 s; nothing more is published here" in told
    assert len(list((tmp_path / "out").glob("part-*"))) <= there + 1, "one may have been between look and rename"
    assert json.loads(lock.read_text())["token"] == "theirs"
    lock.unlink()
    found = run("infer_launch", *words, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0
