"""Settings of the commands that are one file here."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.types import option

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class CompletionConfig:
    """Print a script that lets a shell complete commands and options with the tab key."""

    shell: str = option("bash", "the shell (also as a plain argument)", group="output", choices=SHELLS)


@dataclass(frozen=True)
class SealConfig:
    """Accept edits by hand: write control files (card.json, _job.json and the like) again, with the checksum of their content.

    Prints what has changed since bulkinfer wrote them.
    """

    file: tuple[str, ...] = option((), "control files (also as plain arguments)", group="input")
