"""Writes the page about what the user means: a training run, or a job."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.errors import UsageError
from bulkinfer.host.console import STDOUT
from bulkinfer.insight.find_job import find_job
from bulkinfer.insight.options import ReportConfig
from bulkinfer.insight.output_files import require_file_place, written_file
from bulkinfer.insight.report.training_files import training_folder
from bulkinfer.types import printable_path

FILE = "report.html"  # in the log folder


def write_report(config: ReportConfig) -> tuple[Path | None, int]:
    """Write the page; returns its path (None: stdout) and size in bytes.

    Raises UsageError if there is no such job, or the page cannot be written there; RunError if files are damaged.
    """
    folder = training_folder(config.job, config.log_path)
    if folder is not None:
        if config.labels:
            raise UsageError("--labels is for jobs: the accuracy of a training run is in its own tables")
        from bulkinfer.insight.report.training_page import training_page

        path = _place(config, folder, None)
        return path, _publish(path, training_page(folder))
    from bulkinfer.insight.report.job_page import job_page

    found = find_job(config.job or None, config.log_path)
    if not config.to and found.log_dir is None:
        output = printable_path(found.output)
        raise UsageError(f"the log folder of {output} was not found: give a file for the page with --to FILE")
    path = _place(config, found.log_dir or Path(), found.output)
    return path, _publish(path, job_page(found, config))


def _place(config: ReportConfig, log_dir: Path, output: Path | None) -> Path | None:
    if config.to == STDOUT:
        return None
    if not config.to:
        return require_file_place(str(log_dir / FILE), output, overwrite=True)  # that name is ours
    return require_file_place(config.to, output, overwrite=config.overwrite)


def _publish(path: Path | None, text: str) -> int:
    content = text.encode(errors="backslashreplace")
    with written_file(path) as file:
        file.write(content)
    return len(content)
