"""bulkinfer train: train a network of the zoo."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bulkinfer.commands.parse import parse
from bulkinfer.commands.run_command import run_command
from bulkinfer.host.openmp import spin_briefly
from bulkinfer.train import entry
from bulkinfer.train.foreign_words import translate, translate_for_validation, words_to_validate
from bulkinfer.train.options import TrainConfig, refuse_beside_resume
from bulkinfer.train.validation_options import ValidateConfig

COMMAND = "bulkinfer train"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = words_to_validate(sys.argv[1:] if argv is None else argv)
    if words is not None:
        return run_command(
            "bulkinfer validate", ValidateConfig, entry.validate, words, positional="path", translate=translate_for_validation
        )
    return run_command(COMMAND, TrainConfig, entry.train, argv, defaults_of=_defaults, translate=translate)


# What says the same in two ways: where one is given now, what a run or --config says of the others does not hold.
_RIVALS = (
    ("epochs", "steps"),
    ("lr", "base_learning_rate"),
    ("norm_groups", "norm_channels_per_group"),
)


def _defaults(config: Any) -> Mapping[str, Any]:
    """The options of the run that is continued, or those of --config."""
    found: dict[str, Any] = {}
    refuse_beside_resume(config)
    if config.resume:
        spin_briefly()
        from bulkinfer.train.resume import options_of

        found = options_of(config.resume)
    elif config.config:
        from dataclasses import asdict

        from bulkinfer.train.named_configs import words_of

        words, notes = translate(words_of(config.config, config.config_path))
        for note in notes:
            print(note)
        found = asdict(parse(COMMAND, TrainConfig, words))
    for names in _RIVALS:
        if any(getattr(config, name) for name in names):
            found = {name: value for name, value in found.items() if name not in names}
    return found


if __name__ == "__main__":
    sys.exit(main())
