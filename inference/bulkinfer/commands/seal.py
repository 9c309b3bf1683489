"""bulkinfer seal FILE...: accept control files that were edited by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.options import SealConfig
from bulkinfer.commands.run_command import run_command
from bulkinfer.files.guarded import JOB_BYTES, JSON_BYTES
from bulkinfer.host.console import say

if TYPE_CHECKING:
    from pathlib import Path

# Names of control files -> the most bytes of one, and what checks its content for the commands that read it, called with the
# content and the path. Other control files have no such check.
_KINDS = {
    "card.json": (JSON_BYTES, "bulkinfer.model.card:card_of"),
    "model.json": (JSON_BYTES, "bulkinfer.model.card:sidecar_of"),
    "model_*.json": (JSON_BYTES, "bulkinfer.model.card:sidecar_of"),
    "dataset.json": (JSON_BYTES, "bulkinfer.records.dataset:description_of"),
    "_job.json": (JOB_BYTES, "bulkinfer.results.job_file:JobFile.of"),
    "_job-*.json": (JOB_BYTES, "bulkinfer.results.job_file:JobFile.of"),  # kept by a later job in the same place
    "state.json": (JSON_BYTES, "bulkinfer.train.checkpoints.state:check_state"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: that of the last file that could not be sealed. The others are sealed."""
    return run_command("bulkinfer seal", SealConfig, _run, argv, positional="file")


def _run(config: SealConfig) -> int:
    from pathlib import Path

    from bulkinfer.config import GetModelConfig
    from bulkinfer.errors import BulkinferError, UsageError, os_error_sentence
    from bulkinfer.files.user_path import example_path
    from bulkinfer.model.card import CARD
    from bulkinfer.types import shell_word

    if not config.file:
        models = Path(GetModelConfig.model_path)
        there = example_path(models, f"*/{CARD}", models / "resnet50" / CARD)
        raise UsageError(f"no file given, as in: bulkinfer seal {shell_word(there)}")
    code = 0
    for path in map(Path, config.file):
        try:
            changes = _seal(path)
        except (BulkinferError, OSError) as error:
            what = os_error_sentence(error) if isinstance(error, OSError) else str(error)
            say(f"bulkinfer seal: {what}", is_error=True)
            code = error.exit_code if isinstance(error, BulkinferError) else 1
            continue
        for change in changes:
            say(f"{path}: {change}")
        say(f"{path}: {'sealed' if changes else 'nothing has changed since it was written'}")
    return code


def _seal(path: Path) -> list[str]:
    """Write a control file with the checksum of its present content. Returns what has changed; [] if nothing has been written.

    Raises UsageError or RunError if it is no control file, or the command that reads it would refuse it. It is as before then.
    """
    from fnmatch import fnmatchcase
    from pkgutil import resolve_name

    from bulkinfer.errors import BulkinferError, RunError, UsageError, advising
    from bulkinfer.files.addresses import address_of
    from bulkinfer.files.json_file import read_edited, write_json

    if address := address_of(path):
        raise UsageError(f"{address} lies in a bucket: copy it to this machine, seal it, and put it back")

    most_bytes, check = next((kind for name, kind in _KINDS.items() if fnmatchcase(path.name, name)), (JSON_BYTES, ""))
    with advising("only a control file that is JSON can be sealed"):
        content, changes = read_edited(path, most_bytes)
    try:
        if check:
            resolve_name(check)(content, path)
    except BulkinferError as error:
        if not changes:
            raise RunError(f"{error}: make it again, or restore it") from None
        raise UsageError(f"{error}. It was not sealed: undo what was changed ({'; '.join(changes)})") from None
    if changes:
        write_json(path, content)
    return changes


if __name__ == "__main__":
    sys.exit(main())
