"""Settings of the commands that look at jobs."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import LaunchConfig, check_values, option

# -- watch ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchConfig:
    """Show how far a job has come, from another terminal or host, until it ends. Reads its files, and changes nothing."""

    job: str = option("", "results or log folder of a job, or its name (also as a plain argument); default: the newest one")
    once: bool = option(False, "print one line and stop; exit code 0, 3 or 1 as that of the job, 4 while it runs")
    log_path: str = option(LaunchConfig.log_path, "folder of job logs, for names and the newest job")

    def __post_init__(self) -> None:
        check_values(self)
