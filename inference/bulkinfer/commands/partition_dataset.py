"""partition_dataset: split a folder or a list of pictures into one directory per device."""

from __future__ import annotations

from collections.abc import Sequence

from bulkinfer.commands.next_words import launch_words
from bulkinfer.commands.run_command import run_command
from bulkinfer.config import PartitionConfig
from bulkinfer.host.console import say
from bulkinfer.types import shell_word


def main(argv: Sequence[str] | None = None) -> int:
    """The console script; returns its exit code: 0, or 3 if a folder could not be read or a file is missing."""
    return run_command("partition_dataset", PartitionConfig, _partition, argv, first_word="data_dir", uses_arrow=True)


def _partition(config: PartitionConfig) -> int:
    from bulkinfer.records.partitions.make_partitions import make_partitions

    is_complete = make_partitions(config)
    say(f"next: {' '.join(map(shell_word, launch_words(config.output)))}")
    return 0 if is_complete else 3
