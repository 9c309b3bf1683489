"""A launcher that loses its output while it runs: it stops with one sentence, and publishes nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from bulkinfer.files.own_folder import own_folder

from tests.commands import command, run
from tests.faults.slow_site import held_at, slow_site
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model


@long
def test_a_launcher_that_has_lost_its_lock_stops(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 90)
    words = ["--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32", "--num_devices", 1,
             "--output", "out", "--batches_per_step", 1]  # fmt: skip
    environment = os.environ | slow_site(tmp_path) | held_at(tmp_path / "out", 1, tmp_path / "held")
    with subprocess.Popen(command("infer_launch", *words), cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
                          stdout=subprocess.DEVNULL) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while not list((tmp_path / "out").glob("part-*")):
            assert time.monotonic() < deadline, "no part was published"
            time.sleep(0.02)
        lock = own_folder(tmp_path / "out") / "_lock.json"
        taken = json.loads(lock.read_text()) | {"host": "elsewhere", "token": "theirs"}
        (tmp_path / "theirs").write_text(json.dumps(taken))
        os.rename(tmp_path / "theirs", lock)
        there = len(list((tmp_path / "out").glob("part-*")))
        (tmp_path / "held").unlink()
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


def test_two_launchers_that_begin_one_job_at_the_same_moment(tmp_path: Path) -> None:
    """Without --output the results lie in the log folder: one launcher makes it, and the other finds it."""
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 30)
    words = command("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32",
                    "--num_devices", 1)  # fmt: skip
    started = [subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    told = [process.communicate(timeout=300)[0].decode() for process in started]
    codes = sorted(process.returncode for process in started)
    assert codes in ([0, 0], [0, 1]), told
    assert codes == [0, 0] or any("is in use by a launcher on" in text for text in told), told
    (log_dir,) = (path for path in (tmp_path / "logs").iterdir() if not path.is_symlink())
    assert len(list((log_dir / "results").glob("part-*"))) > 0
    assert run("bulkinfer", "verify", log_dir, cwd=tmp_path).returncode == 0
