"""Settings of the commands that look at what came of a job."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import LaunchConfig, check_values, option
from bulkinfer.errors import UsageError

MOST_PICTURES = 100  # of each kind on a page of bulkinfer report


@dataclass(frozen=True)
class ScoreConfig:
    """Score the rows of a job against known labels: accuracy, classes, confusion, calibration. Changes no row."""

    job: str = option("", "output, log folder or name of a job (also as a plain argument); default the newest job")
    labels: str = option(
        "",
        "folder (the first folder of a key is its class), a table of file names and labels (CSV, val_annotations.txt), "
        "or COCO annotations (JSON)",
    )
    to: str = option("", "folder for the files with all figures; default score/ in the log folder of the job")
    at_least: float = option(0.0, "exit code 1 if top-1 is below this share (0 to 1); 0: any will do", minimum=0)
    model_path: str = option("", "folder of model folders, for the class names; default as the job began")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if not self.at_least <= 1:
            raise UsageError(f"--at_least {self.at_least:g} is no share: give a number from 0 to 1, such as 0.76")


@dataclass(frozen=True)
class CompareConfig:
    """Compare the rows of two jobs over the same pictures: best classes, scores, and the pictures that changed."""

    jobs: tuple[str, ...] = option((), "two jobs: output, log folder or name of each (also as plain arguments)")
    to: str = option("", "folder for the files with all figures; default compare/ in the log folder of the first job")
    data_dir: str = option("", "where the pictures are now, for the contact sheet; default as the first job began")
    log_path: str = option("logs", "folder of job logs")


# -- watch ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchConfig:
    """Show how far a job has come, from another terminal or host, until it ends. Reads its files, and changes nothing."""

    job: str = option("", "results or log folder of a job, or its name (also as a plain argument); default: the newest one")
    once: bool = option(False, "print one line and stop; exit code 0, 3 or 1 as that of the job, 4 while it runs")
    log_path: str = option(LaunchConfig.log_path, "folder of job logs, for names and the newest job")

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class ReportConfig:
    """Write one HTML page about a job, or about a training run: figures, charts and sample pictures. Changes no row."""

    job: str = option(
        "",
        "output, log folder or name of a job, or folder of a training run (also as a plain argument); default the newest",
    )
    labels: str = option("", "known labels, as bulkinfer score takes them, for the accuracy on the page")
    to: str = option("", "file of the page; default report.html in the log folder")
    overwrite: bool = option(False, "replace a page that is there")
    pictures: int = option(12, "most sample pictures of each kind on the page; 0: none", minimum=0)
    data_dir: str = option("", "where the pictures are now; default as the job began")
    model_path: str = option("", "folder of model folders, for the class names; default as the job began")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if self.pictures > MOST_PICTURES:
            raise UsageError(f"--pictures {self.pictures} is too many for one page: give at most {MOST_PICTURES}")
