"""ray_cluster.py without a cluster: a package that is missing, what Ray says in an error."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.launch.engines import ray_cluster
from bulkinfer.launch.engines.ray_cluster import require_ray


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"--engine ray needs the package ray, which is not installed: pip install .*\[ray\]"):
        require_ray()


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        (
            "",
            ConnectionError("Could not find any running Ray instance"),
            "this host is no node of a Ray cluster: run ray start",
        ),
        (
            "h:1",
            RuntimeError("Version mismatch: The cluster was\nstarted with: Ray: 2.9"),
            "different versions: Version mismatch: ",
        ),
        ("h:1", RuntimeError("no raylet"), r"--ray_address h:1: no connection \(no raylet\): run the launch on a node"),
    ],
)
def test_what_ray_refuses_is_one_sentence(address: str, error: Exception, words: str) -> None:
    sentence = ray_cluster._why_not(address, error)
    assert re.search(words, sentence)
    assert "\n" not in sentence


def test_the_folder_of_a_cluster_of_this_host_is_its_own_and_one_of_a_killed_launcher_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = "import os, tempfile; from bulkinfer.launch.engines.ray_cluster import _own_cluster; "
    killed += f"tempfile.tempdir = {str(tmp_path)!r}; own = _own_cluster(); own.__enter__(); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    (tmp_path / "ray-mine").mkdir()
    with ray_cluster._own_cluster() as own, ray_cluster._own_cluster() as other:
        place = Path(own["_temp_dir"])
        assert place.is_dir()
        assert place != Path(other["_temp_dir"])
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        assert len(f"/tmp/ray-abcdefgh/{place.name}/session_2026-11-30_03-40-40_123456_1234567/sockets/plasma_store") < 107
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["ray-mine"]
