"""bulkinfer seal FILE...: accept control files that were edited by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.config import SealConfig
from bulkinfer.host.console import say


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer seal", SealConfig, _run, argv, positional="file")


def _run(config: SealConfig) -> int:
    from pathlib import Path

    from bulkinfer.errors import UsageError, advising
    from bulkinfer.files.json_file import seal

    if not config.file:
        raise UsageError("no file given, as in: bulkinfer seal models/resnet50/card.json")
    for name in config.file:
        with advising("only a control file that is JSON can be sealed"):
            changes = seal(Path(name))
        for change in changes:
            say(f"{name}: {change}")
        say(f"{name}: {'sealed' if changes else 'nothing has changed since it was written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
