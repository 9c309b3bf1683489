"""A retry whose launcher is killed or fails: the output stays sound, and the next retry ends it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.own_folder import own_folder
from bulkinfer.results.log_folder import LAUNCH_FILE
from bulkinfer.results.verify import verify

from tests.commands import command, records, run
from tests.faults.points import LAUNCHER, Plan
from tests.faults.scene import Place, Scene, expect, key_of
from tests.faults.slow_site import held_at, slow_site
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model


@long
@pytest.mark.parametrize("staged", [2, 0])
def test_a_killed_retry_is_run_again(tmp_path: Path, staged: int) -> None:
    """Killed when so many parts lie in _retry, of the four that one worker makes of its share."""
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 120)
    good = {path: path.read_bytes() for path in sorted((tmp_path / "photos").iterdir())[::2]}
    for path in good:
        path.write_bytes(b"no picture")
    words = ["--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32", "--output", "out"]
    assert run("infer_launch", *words, "--num_devices", 2, "--batches_per_step", 2, cwd=tmp_path).returncode == 3
    before = records(tmp_path / "out")
    for path, data in good.items():
        path.write_bytes(data)
    retry = command("bulkinfer", "retry", "out", "--num_devices", 1)
    staging = own_folder(tmp_path / "out") / "_retry"
    environment = os.environ | slow_site(tmp_path) | held_at(staging, staged, tmp_path / "held")
    with subprocess.Popen(retry, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (staging / "_job.json").exists() or len(list(staging.glob("part-*"))) < staged:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0
    assert records(tmp_path / "out") == before
    found = run("bulkinfer", "retry", "out", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    gained = [int(number) for number in re.findall(r"retry: (\d+) error rows are ok now", found.stdout)]
    assert sum(gained) == 60
    assert gained[0] >= 6 * staged
    after = records(tmp_path / "out")
    assert all(row["status"] == "ok" and row["class_names"][0] in key for key, row in after.items())
    assert {key for key in after if after[key] != before[key]} == {path.name for path in good}
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0
    assert not staging.exists()


BROKEN = (1, 5, 6, 17, 38)  # in four parts of the ten


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A job some of whose pictures were broken; those of its place are whole."""
    folder = tmp_path_factory.mktemp("retry")
    scene = Scene(Place.make(folder / "place"), folder / "failed", owns_input=True)
    for path in (scene.input / "datasets").rglob("*.png"):
        if path.name in map(key_of, BROKEN):
            path.write_bytes(b"no picture")
    assert scene.launch("--num_devices=1").code == 3
    return scene


@long
@pytest.mark.parametrize(
    ("point", "side", "hit", "fault"),
    [
        ("part replaced", "before", 1, "kill"),
        ("part replaced", "after", 4, "kill"),
        ("part half written", "before", 2, "kill"),
        ("part rename", "before", 2, "kill"),
        ("job rename", "before", 2, "kill"),
        ("staging put in", "before", 2, "kill"),
        ("staging put in", "after", 2, "kill"),
        ("summary rename", "before", 2, "kill"),
        ("part half written", "before", 2, "ENOSPC"),
        ("staging put in", "before", 2, "EIO"),
    ],
)
def test_a_fault_while_rows_are_put_in(failed: Scene, tmp_path: Path, point: str, side: str, hit: int, fault: str) -> None:
    """Renaming a part and recording it are two steps: at any moment the output is sound, and the same command ends it."""
    scene, words = Scene(failed.place, tmp_path / "scene"), ("--num_devices=1",)
    for name in ("out", ".out.bulkinfer", "logs"):
        shutil.copytree(failed.folder / name, scene.folder / name, symlinks=True)
    (launch_file,) = (scene.folder / "logs").glob(f"tiny-*/{LAUNCH_FILE}")  # it names the output, which is a copy
    write_json(launch_file, {**read_json(launch_file), "output": str(scene.output)})
    hurt = scene.launch(*words, plan=Plan(str(scene.flag), point, side, LAUNCHER, hit, fault), retries=True)
    assert scene.flag.exists(), hurt
    assert expect(hurt, (-9 if fault == "kill" else 1,), "the retry that was hit") == []
    assert verify(scene.output).faults == [], "as it lies there"
    assert expect(scene.launch(*words, retries=True), (0,), "the next retry") == []
    assert scene.troubles() == []
