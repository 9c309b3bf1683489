"""A full or read-only disk: the sentence names a file or an option that the user knows, and nothing temporary stays."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import run_here
from tests.foreign_graphs import foreign_graph, recipe_file, save
from tests.launches import write_photos
from tests.models import write_tiny_model

ADOPT = ("get_model", "--onnx", "m.onnx", "--name", "net", "--recipe", "recipe.json", "--scores", "logits")
ON_DISK = ("--model_path", "disk", "--batch_size", 4)
LAUNCH = ("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--engine", "inline")
FREE = ": free some space, and type the command again"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder with a graph, pictures, a network, and a mounted disk."""
    save(foreign_graph(), tmp_path)
    recipe_file(tmp_path)
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 2)
    (tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", tmp_path / "disk"], check=True)
    yield tmp_path
    subprocess.run(["umount", tmp_path / "disk"], check=True)


def test_get_model_names_the_file_and_leaves_nothing_temporary(home: Path) -> None:
    disk = home / "disk"
    for kib in range(4, 64, 4):
        subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)
        done = run_here(*ADOPT, *ON_DISK, cwd=home)
        if done.returncode == 0:
            break
        assert done.returncode == 1, done.stderr
        what, _, path = done.stderr.strip().removesuffix(FREE).rpartition(": ")
        assert what == "get_model: No space left on device"
        assert Path(path).parent == disk / "net"
        assert not Path(path).name.startswith("_tmp")
        assert not list(disk.rglob("_tmp*"))
        subprocess.run(["find", disk, "-mindepth", "1", "-delete"], check=True)
    assert 16 < kib < 60, "it fails at several files, and then fits"


def test_a_lock_that_does_not_fit_is_named(home: Path) -> None:
    (home / "disk" / "net").mkdir()
    (home / "disk" / "fill").write_bytes(bytes(4096))
    assert run_here(*ADOPT, *ON_DISK, cwd=home).stderr == f"get_model: No space left on device: {home}/disk/net/.lock{FREE}\n"


def test_a_read_only_file_system_is_refused_with_the_option(home: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", home / "disk"], check=True)
    for words, told in (
        ((*ADOPT, *ON_DISK), "get_model: --model_path disk: disk"),
        ((*LAUNCH, "--output", "disk/out"), "infer_launch: --output disk/out: disk"),
        ((*LAUNCH, "--log_path", "disk"), "infer_launch: --log_path disk: disk"),
        (("partition_dataset", "--data_dir", "photos", "--output", "disk/a/b"), "partition_dataset: --output disk/a/b: disk"),
        (("get_dataset", "cifar10", "--data_dir", "disk"), "bulkinfer get_dataset: --data_dir disk: disk"),
    ):
        done = run_here(*words, cwd=home)
        assert (done.returncode, done.stderr) == (2, f"{told} is on a read-only file system: give another folder\n")
