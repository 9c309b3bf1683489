"""ray_cluster.py without a cluster: a package that is missing, what Ray says in an error."""

from __future__ import annotations

import re

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
