"""Settings of the commands that show results."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import LaunchConfig, check_values, option
from bulkinfer.errors import UsageError
from bulkinfer.insight.rows_format import AUTO, FORMATS, format_for, formats_with

MOST_PICTURES = 100  # of each kind on a page of bulkinfer report


@dataclass(frozen=True)
class ScoreConfig:
    """Score the rows of a job against known labels: accuracy, classes, confusion, calibration. Changes no row."""

    job: str = option(
        "", "output, log folder or name of a job (also as a plain argument); default the newest job", group="input"
    )
    labels: str = option(
        "",
        "folder (the first folder of a key is its class), a table of file names and labels (CSV, val_annotations.txt), "
        "or COCO annotations (JSON)",
    )
    to: str = option(
        "",
        "folder for the files with all figures, or - for JSON on stdout; default score/ in the log folder of the job",
        group="output",
        value="FOLDER",
    )
    overwrite: bool = option(False, "replace files that are there; those in the log folder of the job always are")
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

    jobs: tuple[str, ...] = option((), "two jobs: output, log folder or name of each (also as plain arguments)", group="input")
    to: str = option(
        "",
        "folder for the files with all figures, or - for JSON on stdout; default compare/ in the log folder of the first job",
        group="output",
        value="FOLDER",
    )
    overwrite: bool = option(False, "replace files that are there; those in the log folder of the first job always are")
    data_dir: str = option("", "where the pictures are now, for the contact sheet; default as the first job began")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class WatchConfig:
    """Show how far a job has come, from another terminal or host, until it ends. Reads its files, and changes nothing."""

    job: str = option(
        "", "results or log folder of a job, or its name (also as a plain argument); default: the newest one", group="input"
    )
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
        group="input",
    )
    labels: str = option("", "known labels, as bulkinfer score takes them, for the accuracy on the page")
    to: str = option(
        "", "file of the page, or - for stdout; default report.html in the log folder", group="output", value="FILE"
    )
    overwrite: bool = option(False, "replace a page that is there; the one in the log folder always is")
    pictures: int = option(12, "most sample pictures of each kind on the page; 0: none", minimum=0)
    data_dir: str = option("", "where the pictures are now; default as the job began")
    model_path: str = option("", "folder of model folders, for the class names; default as the job began")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if self.pictures > MOST_PICTURES:
            raise UsageError(f"--pictures {self.pictures} is too many for one page: give at most {MOST_PICTURES}")


@dataclass(frozen=True)
class ShowConfig:
    """Show rows of a job as a table: the first ones, the surest or least sure ones, those of a class, or the error rows."""

    job: str = option(
        "", "output, log folder or name of a job (also as a plain argument); default the newest job", group="input"
    )
    top: int = option(20, "the first N rows", minimum=1, group="rows")
    least_sure: int = option(0, "instead the N ok rows with the lowest best score; 0: none", minimum=0)
    most_sure: int = option(0, "instead the N ok rows with the highest best score; 0: none", minimum=0)
    class_name: str = option(
        "", "only rows with this best class: its name, one of its names, or its number", aliases=("class",), is_text=True
    )
    errors: bool = option(False, "only error rows")
    key: str = option("", "only rows whose key fits this shell pattern, such as 'cats/*.jpg'", is_text=True)
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if self.least_sure and self.most_sure:
            raise UsageError("--least_sure and --most_sure are two orders: give one of them")
        if self.top != ShowConfig.top and (self.least_sure or self.most_sure):
            raise UsageError("--top, --least_sure and --most_sure each say how many rows are shown: give one of them")
        if self.errors and (self.least_sure or self.most_sure or self.class_name):
            raise UsageError("--errors: error rows have no class and no score: leave --least_sure, --most_sure and --class out")


@dataclass(frozen=True)
class RowsConfig:
    """Write the rows of a job into a file of another format. The results stay as they are."""

    job: str = option(
        "", "output, log folder or name of a job (also as a plain argument); default the newest job", group="input"
    )
    format: str = option(
        AUTO, "what to write; auto: as the ending of FILE says, csv without one", choices=(AUTO, *FORMATS), group="output"
    )
    to: str = option("", "the file, or - for stdout (not of npy and parquet); of parquet, the folder", value="FILE")
    top_k: int = option(0, "of csv, jsonl and coco: classes of each row, best first; 0: all that were saved", minimum=0)
    column: str = option("", "of npy: the saved output; default embedding, else logits")
    prefix: str = option(
        "/data/local-files/?d=",
        "of label_studio: what comes before a key to make the address of its picture",
        is_text=True,
        may_be_empty=True,
    )
    rows_per_file: int = option(1_000_000, "of parquet: rows in each file", minimum=1)
    overwrite: bool = option(False, "replace what is there")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if not self.to:
            raise UsageError("--to FILE is missing, as in: bulkinfer rows --to rows.csv; --to - writes to stdout")
        object.__setattr__(self, "format", format_for(self.format, self.to))
        for name in vars(self):
            formats = formats_with(name)
            if formats and self.format not in formats and getattr(self, name) != getattr(RowsConfig, name):
                raise UsageError(
                    f"--{name} belongs to --format {' or '.join(formats)}: leave it out with --format {self.format}"
                )


@dataclass(frozen=True)
class JobsConfig:
    """List the jobs in the folder of job logs, newest first: state, rows, errors, date, and size of the output."""

    log_path: str = option("logs", "folder of job logs (also as a plain argument)", group="input")

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class CleanConfig:
    """Remove jobs: their outputs, their log folders, or both. A job that is running is never removed."""

    job: tuple[str, ...] = option((), "outputs, log folders or names of jobs (also as plain arguments)", group="input")
    what: str = option("both", "what to remove of each job", choices=("both", "logs", "output"))
    yes: bool = option(False, "do not ask")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class DoctorConfig:
    """Say what this machine can do, what is missing, and the command that brings it. Always ends with exit code 0."""

    model_path: str = option("models", "folder of model folders, whose disk is looked at", group="input")
    log_path: str = option("logs", "folder of job logs, whose disk is looked at")

    def __post_init__(self) -> None:
        check_values(self)
