"""bulkinfer seal FILE...: accept control files that were edited by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.config import SealConfig
from bulkinfer.host.console import say

if TYPE_CHECKING:
    from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: that of the last file that could not be sealed. The others are sealed."""
    return run_command("bulkinfer seal", SealConfig, _run, argv, positional="file")


def _run(config: SealConfig) -> int:
    from pathlib import Path

    from bulkinfer.errors import BulkinferError, UsageError

    if not config.file:
        raise UsageError("no file given, as in: bulkinfer seal models/resnet50/card.json")
    code = 0
    for name in config.file:
        try:
            _seal(Path(name))
        except BulkinferError as error:
            say(f"bulkinfer seal: {error}", is_error=True)
            code = error.exit_code
    return code


def _seal(path: Path) -> None:
    """Seal a file, if the reader of its kind takes it then. Raises UsageError if not; the file is as before."""
    from bulkinfer.errors import BulkinferError, UsageError, advising
    from bulkinfer.files.atomic import publishing
    from bulkinfer.files.guarded import JOB_BYTES, read_bytes
    from bulkinfer.files.json_file import seal

    with advising("only a control file that is JSON can be sealed"):
        before = read_bytes(path, JOB_BYTES) if path.exists() else b""
        changes = seal(path)
    try:
        _read(path)
    except BulkinferError as error:
        with publishing(path) as temporary:
            temporary.write_bytes(before)
        raise UsageError(f"{error}. It was not sealed: undo what was changed ({'; '.join(changes)})") from None
    for change in changes:
        say(f"{path}: {change}")
    say(f"{path}: {'sealed' if changes else 'nothing has changed since it was written'}")


def _read(path: Path) -> None:
    """Read a control file as the commands do that use it; nothing for those that any JSON object may be."""
    if path.name == "card.json":
        from bulkinfer.model.card import read_card

        read_card(path)
    elif path.name == "dataset.json":
        from bulkinfer.records.manifest import read_description

        read_description(path)
    elif path.name == "_job.json":
        from bulkinfer.results.job_file import JobFile

        JobFile.read_file(path)
    elif path.name == "state.json":
        from bulkinfer.train.state import read_state

        read_state(path.parent)


if __name__ == "__main__":
    sys.exit(main())
