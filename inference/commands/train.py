"""bulkinfer train: train a network of the zoo."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from inference.commands.flags import parse, run_command
from inference.train.options import TrainConfig

COMMAND = "bulkinfer train"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(COMMAND, TrainConfig, _run, argv, defaults_of=_defaults)


def _defaults(config: TrainConfig) -> Mapping[str, Any]:
    """The options of the run that is continued, or those of --config."""
    if config.resume:
        from inference.train.resume import options_of

        return options_of(config.resume)
    if config.config:
        from dataclasses import asdict

        from inference.train.named_configs import words_of

        return asdict(parse(COMMAND, TrainConfig, words_of(config.config, config.config_path)))
    return {}


def _run(config: TrainConfig) -> int:
    from inference.train.session import run

    return run(config)


if __name__ == "__main__":
    sys.exit(main())
