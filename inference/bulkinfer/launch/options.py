"""Settings of the command that joins what several launches have done."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import check_values, option


@dataclass(frozen=True)
class MergeConfig:
    """Make one output of the shards of a job. Files are linked, and copied only where the file system has no links."""

    shards: str = option(
        "", "folder of the shards: --output of their launches (also as a plain argument)", group="input", value="FOLDER"
    )
    output: str = option(
        "", "folder that gets the rows of all; default merged, in the folder of the shards", group="output", value="FOLDER"
    )

    def __post_init__(self) -> None:
        check_values(self)
