"""What the commands call: training and validation, after the settings that count only before torch is loaded."""

from __future__ import annotations

from bulkinfer.host.openmp import spin_briefly
from bulkinfer.train.memory import keep_freed_memory
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.validation_options import ValidateConfig


def train(config: TrainConfig) -> int:
    """See bulkinfer.train.launch.run."""
    _set_up_process()
    from bulkinfer.train.launch import run

    return run(config)


def validate(config: ValidateConfig) -> int:
    """See bulkinfer.train.checking.run."""
    _set_up_process()
    from bulkinfer.train.checking import run

    return run(config)


def _set_up_process() -> None:
    spin_briefly()
    keep_freed_memory()
