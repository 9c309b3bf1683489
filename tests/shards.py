"""A small job in shards, each launched in the process of the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.launch.launcher import LaunchResult, launch

from tests.launches import config_of

NUM_PICTURES, COUNT = 26, 3  # in seven steps of four pictures
BROKEN = "005-cyan.png"  # in the second step, so of shard 2


def shard_config(folder: Path, **changes: object) -> LaunchConfig:
    """The config of all shards of a job on pictures in `folder`, of which one is broken; --shard is still to be set."""
    config = config_of(folder, photos=NUM_PICTURES, engine="inline", batches_per_step=1, **changes)
    picture = folder / "photos" / BROKEN
    picture.write_bytes(picture.read_bytes()[:60])
    return config


def launch_shard(config: LaunchConfig, index: int, count: int = COUNT) -> LaunchResult:
    """Launch one shard."""
    return launch(replace(config, shard=f"{index}/{count}"))


def launch_shards(folder: Path) -> LaunchConfig:
    """All shards of the job, launched one after the other."""
    config = shard_config(folder)
    assert [launch_shard(config, index).exit_code for index in (3, 1, 2)] == [0, 0, 3]
    return config
