"""bulkinfer bench: measure this host, tune the plan of threads for it, or run the benchmarks of a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bulkinfer.bench.options import OF_TRAINING, BenchConfig
from bulkinfer.commands.run_command import run_command
from bulkinfer.commands.words import split_flag


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    is_spec = any(split_flag(word)[0] == "spec" for word in words)  # then plain words are names of its entries
    if is_spec:
        return run_command("bulkinfer bench", BenchConfig, _run, argv, positional="benchmark", defaults_of=_defaults)
    return run_command(
        "bulkinfer bench", BenchConfig, _run, argv, first_word="data_dir", defaults_of=_defaults, uses_arrow=_uses_arrow
    )


def _defaults(config: Any) -> Mapping[str, Any]:
    """What --data_only leaves open is as in bulkinfer train."""
    return OF_TRAINING if config.data_only else {}


def _uses_arrow(config: BenchConfig) -> bool:
    return not config.data_only


def _run(config: BenchConfig) -> int:
    if config.spec:
        from bulkinfer.bench.spec.bench_spec import bench_spec

        return bench_spec(config)
    if config.data_only:
        from bulkinfer.bench.training_input import bench_training_input

        return bench_training_input(config)
    from bulkinfer.bench.bench import bench

    return bench(config)


if __name__ == "__main__":
    sys.exit(main())
