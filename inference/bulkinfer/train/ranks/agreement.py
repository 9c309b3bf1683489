"""What the ranks of a run compare before the first update: a rank with other data or options would train another network."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from bulkinfer import __version__
from bulkinfer.datasets.types import short_hash
from bulkinfer.errors import UsageError
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.checkpoints.checkpoint import Checkpoint
from bulkinfer.train.data.samples import Samples
from bulkinfer.train.training import Training

# Options that may differ from rank to rank: where things lie, and how fast they are read.
_OWN = (
    "config", "config_path", "data_dir", "download", "num_workers", "cache_mb", "init_checkpoint", "resume", "check_pictures",
    "log_path", "name_suffix", "tensorboard", "wandb", "wandb_project", "wandb_run_name", "wandb_tags", "device", "replicas",
)  # fmt: skip


def agree(training: Training, found: Checkpoint | None) -> None:
    """Compare this rank with the others, and give all of them the weights of the first.

    `found` is the checkpoint from which the run goes on. Raises UsageError on all ranks if one differs from the first.
    """
    ranks = training.ranks
    if ranks.are_many:
        compare(ranks.gather((socket.gethostname(), facts_of(training, found))))
        ranks.take_from_first([*training.model.network.parameters(), *training.model.network.buffers()])


def compare(answers: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Raises UsageError for the first rank whose facts are not those of rank 0. `answers` are host and facts of each rank."""
    first_host, first = answers[0]
    for rank, (host, facts) in enumerate(answers):
        differing = [name for name in {**first, **facts} if first.get(name) != facts.get(name)]
        if differing:
            values = f"{facts.get(differing[0], 'none')}, not {first.get(differing[0], 'none')}"
            more = "".join(f", {name}" for name in differing[1:4])
            raise UsageError(
                f"rank {rank} on {host} would train something else than rank 0 on {first_host}: it has other {differing[0]} "
                f"({values}){more}: give all ranks the same data and options"
            )


def facts_of(training: Training, found: Checkpoint | None) -> dict[str, str]:
    """What must be equal on all ranks, by the name that a user knows; of much data, how many there are and a hash."""
    data, config = training.data, training.plan.config
    facts = {
        **_facts_of_pictures("training", data.samples),
        "classes": f"{len(data.samples.class_names)}, {short_hash(chr(0).join(data.samples.class_names).encode())}",
    }
    if data.held_out is not None:
        facts |= _facts_of_pictures("validation", data.held_out)
    facts |= {f"--{name}": str(value) for name, value in asdict(config).items() if name not in _OWN}
    source = checkpoint.find(Path(config.init_checkpoint)) if config.init_checkpoint and found is None else found
    if source is not None:
        facts["first weights"] = f"of step {source.step}, {short_hash(str(source.state['sha256']).encode())}"
    return {**facts, "version of bulkinfer": __version__, "version of torch": torch.__version__}


def _facts_of_pictures(split: str, samples: Samples) -> dict[str, str]:
    return {
        f"{split} pictures": f"{len(samples.labels)}, {samples.digest()}",
        f"{split} labels": short_hash(samples.labels.tobytes()),
    }
