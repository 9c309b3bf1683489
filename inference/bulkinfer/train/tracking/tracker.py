"""`bulkinfer train --wandb`: the rows of both tables of a run, sent to Weights & Biases as well."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bulkinfer.errors import RunError, first_line
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.host.process_setup import show_wandb
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.runs import Log
from bulkinfer.types import shell_word

IDENTITY = "wandb.json"  # in the folder of a run: the id that a run which is continued goes on with
_FINISH_S = 120.0  # for what is still to be sent when a run ends; the rest stays in the folder


def identity_of(folder: Path) -> str:
    """The id of the run of wandb that belongs to a run, made for a new one. Raises RunError if its file holds none."""
    path = folder / IDENTITY
    if not path.exists():
        write_json(path, {"id": secrets.token_hex(4)})
    found = read_json(path).get("id")
    if not isinstance(found, str) or not found.isalnum():
        raise RunError(f"{path} has no id of a run: remove it, and a new one is begun")
    return found


def tracked(run: Log, config: TrainConfig, identity: str) -> Log:
    """The log of a run, which --wandb sends to Weights & Biases as well; the run goes on without it where that fails.

    `identity` is that of identity_of().
    """
    if not config.wandb:
        return run
    try:
        tracker = _begin(run.folder, config, identity)
    except Exception as error:
        _give_up(run, error, "with WANDB_MODE=offline it keeps the rows here, to be sent later")
        return run
    return run if tracker.disabled else _Tracked(run, tracker)  # by WANDB_MODE


class _Tracked:
    """Writes to a run's own log, then to a tracker, which is given up at its first error."""

    def __init__(self, run: Log, tracker: Any) -> None:
        self.folder, self._run, self._tracker = run.folder, run, tracker
        how = f"not sent; {_sync_command(self.folder)} sends it" if tracker.offline else tracker.url
        run.say(f"wandb: run {tracker.id}, {how}")

    def say(self, line: str) -> None:
        """Write a line to the run's own log."""
        self._run.say(line)

    def warn(self, line: str) -> None:
        """Write a warning to the run's own log."""
        self._run.warn(line)

    def advance(self, pictures: int) -> None:
        """Count pictures that were trained on."""
        self._run.advance(pictures)

    def training(self, row: dict[str, Any]) -> None:
        """Write the averages over some updates."""
        self._run.training(row)
        self._send("training", row)

    def validation(self, row: dict[str, Any]) -> None:
        """Write the scores of a validation."""
        self._run.validation(row)
        self._send("validation" if row.get("weights", "raw") == "raw" else f"validation-{row['weights']}", row)

    def close(self) -> None:
        """End the log."""
        try:
            self._try(lambda: self._tracker.finish())
        finally:
            self._run.close()

    def _send(self, kind: str, row: dict[str, Any]) -> None:
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        own = {name: numbers.pop(name) for name in ("step", "epoch")}
        self._try(lambda: self._tracker.log({**own, **{f"{kind}/{name}": value for name, value in numbers.items()}}))

    def _try(self, call: Callable[[], object]) -> None:
        if self._tracker is None:
            return
        try:
            call()
        except Exception as error:
            self._tracker = None
            _give_up(self._run, error, f"{_sync_command(self.folder)} sends what it has written")


def _begin(folder: Path, config: TrainConfig, identity: str) -> Any:
    """Begin a run of wandb, or go on with the one of this folder. WANDB_MODE, WANDB_ENTITY and others are its own."""
    show_wandb()
    import wandb

    tracker = wandb.init(
        project=config.wandb_project,
        name=config.wandb_run_name or folder.name,
        tags=list(config.wandb_tags),
        config=asdict(config),
        dir=str(folder),
        id=identity,
        resume="allow",
        settings=wandb.Settings(console="off", silent=True, finish_timeout=_FINISH_S, finish_timeout_raises=True),
    )
    tracker.define_metric("*", step_metric="step")  # its own counter would drop rows that a continued run makes again
    return tracker


def _give_up(run: Log, error: Exception, advice: str) -> None:
    """Warn once that nothing more is sent: why, and what to do."""
    run.warn(f"--wandb: {first_line(error).rstrip('.')}: the run goes on without it; {advice}")


def _sync_command(folder: Path) -> str:
    return f"wandb sync {shell_word(folder / 'wandb')}/*run-*"
