"""infer_launch takes as many threads as it may use CPUs, and pins none of them: under a CPU mask and under a quota."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import pictures
from tests.commands import command, run
from tests.foreign_graphs import foreign_graph, recipe_file, save
from tests.forms import long, only_first
from tests.models import write_tiny_model
from tests.runtime_in_front import runtime_in_front

LAUNCH = ("--model_name", "tiny", "--data_dir", "photos", "--batches_per_step", 1)
CPUS = sorted(os.sched_getaffinity(0))
# notes how many threads a session starts, and on which CPUs each thread of the process may run
RECORDER = """
import json, os, onnxruntime
def threads():
    return [int(task) for task in os.listdir("/proc/self/task")]
plain = onnxruntime.InferenceSession.__init__
def init(self, *words, **options):
    before = len(threads())
    plain(self, *words, **options)
    cpus = [sorted(os.sched_getaffinity(task)) for task in threads()]
    with open({path!r}, "a") as file:
        file.write(json.dumps([len(cpus) - before, cpus]) + "\\n")
onnxruntime.InferenceSession.__init__ = init
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models")
    pictures.write_files(tmp_path / "photos", {"a.png": pictures.encode(pictures.solid())})
    return tmp_path


def on_one_cpu(name: str, *words: object, cwd: Path, env: dict[str, str] | None = None) -> Any:
    """A command that is limited to the last CPU that we may use."""
    line = ["taskset", "-c", str(CPUS[-1]), *command(name, *words)]
    return subprocess.run(
        line, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=300, check=False
    )


def worker_log(place: Path) -> str:
    return (place / "logs" / "latest" / "worker-0.log").read_text()


@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("device", only_first(["cpu", "openvino"]))
def test_b34_one_cpu_means_one_thread_and_clean_streams(device: str, place: Path) -> None:
    found = on_one_cpu("infer_launch", *LAUNCH, "--device", device, "--output", "out", cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    assert "cores: 1 usable of 1 in the affinity mask" in found.stdout
    assert "1 worker, each 1 stream(s) x 1 thread(s) and 1 loader thread(s)" in found.stdout
    log = worker_log(place)
    assert f"cores [{CPUS[-1]}]; " in log
    assert '"streams": 1, "threads_per_stream": 1' in log
    for word in ("affinity", "rror", "arning"):
        assert word not in log


@long
def test_b34_the_session_starts_no_thread_of_its_own_on_one_cpu(place: Path) -> None:
    env = runtime_in_front(place / "front", after=RECORDER.format(path=str(place / "threads.jsonl")))
    found = on_one_cpu("infer_launch", *LAUNCH, "--device", "cpu", "--output", "out", cwd=place, env=env)
    assert (found.returncode, found.stderr) == (0, "")
    (line,) = (place / "threads.jsonl").read_text().splitlines()
    started, cpus = json.loads(line)
    assert started == 0
    assert cpus == [[CPUS[-1]]] * len(cpus)


def test_b34_threads_of_the_session_are_counted_and_not_pinned(place: Path) -> None:
    """One stream on all CPUs: the caller's thread and one of the runtime's for each further CPU, free to move."""
    env = runtime_in_front(place / "front", after=RECORDER.format(path=str(place / "threads.jsonl")))
    words = ("--device", "cpu", "--num_devices", 1, "--streams", 1, "--output", "out")
    found = run("infer_launch", *LAUNCH, *words, cwd=place, env=env)
    assert (found.returncode, found.stderr) == (0, "")
    (line,) = (place / "threads.jsonl").read_text().splitlines()
    started, cpus = json.loads(line)
    assert f'"streams": 1, "threads_per_stream": {started + 1}' in worker_log(place)
    assert started + 1 <= len(CPUS)
    assert cpus == [CPUS] * len(cpus)
    assert "affinity" not in worker_log(place)


@long
def test_b34_get_model_is_clean_on_one_cpu(tmp_path: Path) -> None:
    graph = save(foreign_graph(), tmp_path)
    words = ("--onnx", graph, "--name", "net", "--recipe", recipe_file(tmp_path), "--scores", "logits")
    found = on_one_cpu("get_model", *words, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert "affinity" not in found.stdout


def under_quota(place: Path, quota_us: str, *words: object) -> str:
    """What a dry run prints where the control groups, old and new, give this quota of a period of 0.1 s."""
    groups = place / "groups"
    old_us = "-1" if quota_us == "max" else quota_us
    for folder in ("cpu", "cpu,cpuacct", "unified", "."):
        (groups / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("cpu", "cpu,cpuacct"):
        (groups / folder / "cpu.cfs_quota_us").write_text(f"{old_us}\n")
        (groups / folder / "cpu.cfs_period_us").write_text("100000\n")
    for folder in (".", "unified"):
        (groups / folder / "cpu.max").write_text(f"{quota_us} 100000\n")
    line = shlex.join(command("infer_launch", *LAUNCH, "--dry_run", *words))
    mounted = f"mount --bind {shlex.quote(str(groups))} /sys/fs/cgroup && exec {line}"
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted], cwd=place, capture_output=True, text=True, timeout=300, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    return next(text for text in found.stdout.splitlines() if text.startswith("cores: "))


@pytest.mark.parametrize(("quota_us", "told", "usable"), only_first([
    ("100000", "quota 1", 1), ("max", "no quota", 1 << 20), ("150000", "quota 1.5", 1), ("50000", "quota 0.5", 1),
    ("6400000", "quota 64", 64),
], 2))  # fmt: skip
def test_b35_the_header_shows_the_quota_and_what_it_leaves(quota_us: str, told: str, usable: int, place: Path) -> None:
    line = under_quota(place, quota_us)
    threads = min(usable, len(CPUS))
    assert line.startswith(f"cores: {threads} usable of {len(CPUS)} in the affinity mask, {told}; ")
    assert f"1 worker, each {threads} stream(s) x 1 thread(s) and {threads} loader thread(s)" in line


@long
def test_b35_workers_share_the_quota_and_options_override_it(place: Path) -> None:
    line = under_quota(place, "100000", "--num_devices", 3)
    assert "3 workers, each 1 stream(s) x 1 thread(s) and 1 loader thread(s)" in line
    line = under_quota(place, "100000", "--streams", 5, "--num_workers", 7)
    assert "1 worker, each 5 stream(s) x 1 thread(s) and 7 loader thread(s)" in line
