"""ranks/start.py: which ranks are started, and whose error is that of the command."""

from __future__ import annotations

from typing import Any

import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.ranks.start import Ending, cause_of, error_of, ranks_to_start


@pytest.mark.parametrize(("options", "count"), [
    ({}, 0), ({"replicas": 1}, 0), ({"replicas": 4}, 4), ({"replicas": 4, "dry_run": True}, 0),
    ({"global_batch_size": 64}, 0), ({"micro_batch_size": 8, "gradient_accumulation": 2, "global_batch_size": 64}, 4),
    ({"shards": 2, "pipeline_splits": ("layer2.0",)}, 2), ({"replicas": 3, "pipeline_splits": ("layer2.0", "layer3.0")}, 9),
    ({"pipeline_splits": ("none",)}, 0),
])  # fmt: skip
def test_what_is_started(options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks_to_start(TrainConfig(**options)) == count
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ranks_to_start(TrainConfig(**options)) == 0, "torchrun has started them"


KILLED = Ending(1, -9, 100.0)
LOST = Ending(0, 1, 99.5, sentence="another rank has ended: go on", advice=": go on", is_lost=True)
LATE = Ending(3, -9, 130.0)  # ended by torch's launcher, as it did not end by itself
REFUSED = Ending(2, 2, 100.2, sentence="no such folder")
STOPPED = Ending(2, 143, 99.0, sentence="stopped by SIGTERM", is_stopped=True)
CLOSED = Ending(3, -15, 99.0, is_lost=True)  # ended by torch's launcher before it began to work
BUG = Ending(0, 1, 99.0)


@pytest.mark.parametrize(("endings", "cause"), [
    ([LOST, LATE, KILLED], KILLED), ([LOST, REFUSED], REFUSED), ([REFUSED, KILLED], KILLED), ([LOST], LOST),
    ([STOPPED, REFUSED], REFUSED), ([STOPPED, LOST], None), ([STOPPED], None), ([], None), ([KILLED, BUG], BUG),
    ([CLOSED, REFUSED], REFUSED), ([CLOSED, KILLED], KILLED), ([CLOSED], CLOSED),
])  # fmt: skip
def test_the_first_one_that_failed_by_itself_is_the_cause(endings: list[Ending], cause: Ending | None) -> None:
    assert cause_of(endings) == cause


def test_its_error_is_that_of_the_command() -> None:
    refused, lost, killed, bug = (error_of(cause, [LOST, KILLED]) for cause in (REFUSED, LOST, KILLED, BUG))
    assert (type(refused), str(refused)) == (UsageError, "no such folder")
    assert (type(lost), str(lost)) == (RunError, "another rank has ended: go on")
    assert str(killed) == "rank 1 was ended by signal 9 (SIGKILL), which is what a system does that lacks memory: go on"
    assert str(bug) == "rank 0 failed with exit code 1: the lines before say why"
