"""Sixteen launchers over one data set, by the scripts of docs/how-to/many-machines.md; three are killed and started again."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from bulkinfer.commands.parse import parse
from bulkinfer.config import LaunchConfig
from bulkinfer.launch.jobs.shards import with_shard
from bulkinfer.results.shard import SHARDS_FILE

from tests.commands import SCRIPTS, rows, run
from tests.faults.slow_site import held_at, slow_site
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.pages import blocks
from tests.rules.source import ROOT

PAGE = ROOT / "docs" / "how-to" / "many-machines.md"
NUM_PICTURES, COUNT = 150, 16
ARRAY, ALLOCATION = (block.text for block in blocks(PAGE) if "#SBATCH" in block.text)
SRUN = """#!/bin/bash
# Runs a command as SLURM's srun does for one task, SLURM_PROCID of SLURM_NTASKS, which are set
exec "$@"
"""
TASKS = """#!/bin/bash
# Runs a command as SLURM's srun does for all tasks of an allocation
for task in $(seq 0 $((SLURM_NTASKS - 1))); do SLURM_PROCID=$task "$@" & done
wait
"""
CHANGES = {  # what a reader changes: names of places and of the network, and lengths that fit a few pictures
    "efficientnet_lite0": "tiny", "--batch_size 16": "--batch_size 2", "--batches_per_step 100": "--batches_per_step 1",
    "--device cpu": "--device cpu --num_devices 1",
}  # fmt: skip


def script_of(text: str, place: Path, srun: str) -> Path:
    """A script of the page, to be run in `place`, where srun is a stand-in."""
    for old, new in {**CHANGES, "/shared": str(place)}.items():
        assert old in text, old
        text = text.replace(old, new)
    (place / "bin").mkdir()
    (place / "bin" / "srun").write_text(srun)
    (place / "bin" / "srun").chmod(stat.S_IRWXU)
    script = place / "shards.sh"
    script.write_text(text)
    return script


def environment(place: Path, **variables: object) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "DATA_DIR" and not name.startswith("SLURM_")}
    path = f"{place / 'bin'}{os.pathsep}{SCRIPTS}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, **{name: str(value) for name, value in variables.items()}}


def data_set(place: Path, count: int) -> None:
    write_tiny_model(place / "models", batch_sizes=(2,))
    write_photos(place / "photos", count)
    made = run("partition_dataset", "--data_dir", "photos", "--partitions", 3, "--output", "datasets", cwd=place)
    assert made.returncode == 0, made.stderr


def start(script: Path, task: int, **variables: object) -> subprocess.Popen[str]:
    """One task of the array, in a process group of its own, as a node has it."""
    place = script.parent
    variables |= {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_COUNT": 1, "SLURM_PROCID": 0, "SLURM_NTASKS": 1}
    return subprocess.Popen(
        ["bash", str(script)], cwd=place, env=environment(place, **variables), start_new_session=True, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def ends(script: Path, task: int) -> str:
    """Run a task to its end; what is wrong with it."""
    process = start(script, task)
    _, said = process.communicate(timeout=300)
    return "" if process.returncode == 0 else f"task {task} ended with {process.returncode}: {said}"


def kill_at_work(script: Path, task: int, **variables: object) -> None:
    """Start a task, and kill it with all that it has started when its first part is there and others are not."""
    output = script.parent / "out" / f"shard-{task:02d}-of-{COUNT}"
    process = start(script, task, **variables, **held_at(output, 1, script.parent / "held"))
    while process.poll() is None and not list(output.glob("part-*")):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, "it had ended before it was killed"


@long
def test_three_of_sixteen_launchers_are_killed_and_started_again(tmp_path: Path) -> None:
    data_set(tmp_path, NUM_PICTURES)
    script, slow, killed = script_of(ARRAY, tmp_path, SRUN), slow_site(tmp_path), (2, 7, 16)
    with ThreadPoolExecutor(3) as nodes:
        list(nodes.map(lambda task: kill_at_work(script, task, **slow), killed))
        assert [said for said in nodes.map(lambda task: ends(script, task), set(range(1, COUNT + 1)) - {*killed}) if said] == []
    torn = run("bulkinfer", "verify", "out", cwd=tmp_path)
    assert torn.returncode == 1
    assert set(re.findall(r"verify: (shard-\d\d-of-16): partition", torn.stderr)) == {
        f"shard-{task:02d}-of-16" for task in killed
    }
    early = run("bulkinfer", "merge", "out", cwd=tmp_path)
    assert early.returncode == 1
    assert "3 of 16 shards are not complete (2/16; 7/16; 16/16): run infer_launch " in early.stderr
    assert not (tmp_path / "out" / "merged").exists()
    with ThreadPoolExecutor(3) as nodes:
        assert [said for said in nodes.map(lambda task: ends(script, task), killed) if said] == []
    for words in (("verify", "out"), ("merge", "out"), ("verify", "out/merged"), ("verify", "out")):
        done = run("bulkinfer", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert words[0] == "merge" or f"records: {NUM_PICTURES}, rows: {NUM_PICTURES} ok + 0 errors" in done.stdout
    whole = run("infer_launch", "--model_name", "tiny", "--batch_size", 2, "--device", "cpu", "--precision", "fp32", "--output",
                "whole", "--log_path", "whole-logs", cwd=tmp_path)  # fmt: skip
    assert whole.returncode == 0, whole.stderr
    merged = rows(tmp_path / "out" / "merged")
    assert set(Counter(merged["key"].to_pylist()).values()) == {1}
    assert merged.equals(rows(tmp_path / "whole"))
    hidden = [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("_")]
    assert hidden == [SHARDS_FILE], "nothing else was left"


@long
def test_tasks_of_one_allocation_share_the_job(tmp_path: Path) -> None:
    """All start at once: they agree on the job that they share, whoever comes first."""
    data_set(tmp_path, 30)
    script = script_of(ALLOCATION, tmp_path, TASKS)
    done = subprocess.run(["bash", str(script)], cwd=tmp_path, env=environment(tmp_path, SLURM_NTASKS=4), capture_output=True,
                          text=True, check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").glob("shard-*")) == [f"shard-{n}-of-4" for n in (1, 2, 3, 4)]
    assert len(rows(tmp_path / "out" / "merged")) == 30


def test_the_pods_of_the_indexed_job_are_its_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    (manifest,) = (yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml")
    spec = manifest["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    program, *words = container["args"][0].partition("||")[0].split()
    assert (program, spec["completionMode"], container["command"]) == ("infer_launch", "Indexed", ["sh", "-c"])
    shards = set()
    for pod in range(spec["completions"]):
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(pod))
        shards.add(with_shard(parse("infer_launch", LaunchConfig, words)).shard)
    assert shards == {f"{index}/16" for index in range(1, 17)}
