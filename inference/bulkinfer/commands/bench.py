"""bulkinfer bench: measure this host, or tune the plan of threads for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.bench.options import BenchConfig
from bulkinfer.commands.run_command import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer bench", BenchConfig, _run, argv, first_word="data_dir", uses_arrow=True)


def _run(config: BenchConfig) -> int:
    from bulkinfer.bench.bench import bench

    return bench(config)


if __name__ == "__main__":
    sys.exit(main())
