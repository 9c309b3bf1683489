"""bulkinfer merge FOLDER: one output of the shards of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.launch.options import MergeConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as that of infer_launch: 0 every record ok, 3 complete with error rows, 1 not."""
    return run_command("bulkinfer merge", MergeConfig, _run, argv, positional="shards", uses_arrow=True)


def _run(config: MergeConfig) -> int:
    from pathlib import Path

    from bulkinfer.errors import UsageError
    from bulkinfer.files.user_path import example_path
    from bulkinfer.launch.merge import merge_shards
    from bulkinfer.results.shard import SHARDS_FILE
    from bulkinfer.types import printable_path, shell_word

    if not config.shards:
        there = example_path(Path(), f"*/{SHARDS_FILE}", Path("out", SHARDS_FILE)).parent
        raise UsageError(f"no folder of shards given, as in: bulkinfer merge {shell_word(there)}")
    merged = merge_shards(config)
    counts = merged.counts
    say(f"records: {counts.ok + counts.errors} = {counts.ok} ok + {counts.errors} errors")
    say(f"results: {printable_path(merged.output)}")
    say(f"next: bulkinfer verify {shell_word(merged.output)}")
    return merged.exit_code


if __name__ == "__main__":
    sys.exit(main())
