"""What the commands call: training and validation, after the settings that count only before torch is loaded."""

from __future__ import annotations

from inference.train.memory import keep_freed_memory
from inference.train.options import TrainConfig
from inference.train.validation_options import ValidateConfig
from inference.waiting import spin_briefly


def train(config: TrainConfig) -> int:
    """See inference.train.launch.run."""
    _set_up_process()
    from inference.train.launch import run

    return run(config)


def validate(config: ValidateConfig) -> int:
    """See inference.train.checking.run."""
    _set_up_process()
    from inference.train.checking import run

    return run(config)


def _set_up_process() -> None:
    spin_briefly()
    keep_freed_memory()
