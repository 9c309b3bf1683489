"""Settings of the commands that look at jobs."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import check_values, option
from bulkinfer.errors import UsageError

# -- show, rows, jobs, clean ---------------------------------------------------------------------------------------------

FORMATS = ("csv", "jsonl", "npy", "coco", "label_studio", "fiftyone", "parquet")


@dataclass(frozen=True)
class ShowConfig:
    """Show rows of a job as a table: the first ones, the surest or least sure ones, those of a class, or the error rows."""

    job: str = option("", "output, log folder or name of a job (also as a plain argument); default the newest job")
    top: int = option(20, "the first N rows", minimum=1)
    least_sure: int = option(0, "instead the N ok rows with the lowest best score; 0: none", minimum=0)
    most_sure: int = option(0, "instead the N ok rows with the highest best score; 0: none", minimum=0)
    class_name: str = option(
        "", "only rows with this best class: its name, one of its names, or its number", aliases=("class",)
    )
    errors: bool = option(False, "only error rows")
    key: str = option("", "only rows whose key fits this shell pattern, such as 'cats/*.jpg'")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if self.least_sure and self.most_sure:
            raise UsageError("--least_sure and --most_sure are two orders: give one of them")
        if self.errors and (self.least_sure or self.most_sure or self.class_name):
            raise UsageError("--errors: error rows have no class and no score: leave --least_sure, --most_sure and --class out")


@dataclass(frozen=True)
class RowsConfig:
    """Write the rows of a job into a file of another format. The results stay as they are."""

    job: str = option("", "output, log folder or name of a job (also as a plain argument); default the newest job")
    format: str = option("csv", "what to write", choices=FORMATS)
    to: str = option("", "the file; of --format parquet, the folder")
    top_k: int = option(0, "classes of each row, best first; 0: all that were saved", minimum=0)
    column: str = option("", "of npy: the saved output; default embedding, else logits")
    prefix: str = option("/data/local-files/?d=", "of label_studio: what comes before a key to make the address of its picture")
    rows_per_file: int = option(1_000_000, "of parquet: rows in each file", minimum=1)
    overwrite: bool = option(False, "replace what is there")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
        if not self.to:
            raise UsageError("--to FILE is missing, as in: bulkinfer rows --format csv --to rows.csv")


@dataclass(frozen=True)
class JobsConfig:
    """List the jobs in the folder of job logs, newest first: state, rows, errors, date, and size of the output."""

    log_path: str = option("logs", "folder of job logs (also as a plain argument)")

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class CleanConfig:
    """Remove jobs: their outputs, their log folders, or both. A job that is running is never removed."""

    job: tuple[str, ...] = option((), "outputs, log folders or names of jobs (also as plain arguments)")
    what: str = option("both", "what to remove of each job", choices=("both", "logs", "output"))
    yes: bool = option(False, "do not ask")
    log_path: str = option("logs", "folder of job logs")

    def __post_init__(self) -> None:
        check_values(self)
