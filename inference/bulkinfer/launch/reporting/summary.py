"""The result of a launch: whether every record is accounted for, what is logged and written to summary.json, the exit code."""

from __future__ import annotations

import logging
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.guarded import JOB_BYTES
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.latest_link import point_latest
from bulkinfer.host.number_text import rate_text
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.engines import Engine
from bulkinfer.launch.jobs.begun_config import continuing
from bulkinfer.launch.jobs.job import RETRY, WITHOUT
from bulkinfer.launch.plan import Plan
from bulkinfer.launch.reporting.sample_rows import error_lines, ok_lines
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.results.job_file import JOB_FILE, JobFile, RowCounts, job_path
from bulkinfer.results.log_folder import SUMMARY_FILE
from bulkinfer.results.output_store import output_store
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")

OK, INCOMPLETE, WITH_ERRORS = 0, 1, 3  # exit codes; 2 is wrong use, 130 and 143 follow a signal


@dataclass(frozen=True)
class LaunchResult:
    """What came of a launch.

    `exit_code`: 0 every record is ok; 3 every record has a row, and some are error rows, or a folder could not be read; 1 some
    records have no row yet; 128 + the number of the signal that ended it. `records` is the number of pictures of the job, `ok`
    and `errors` count their rows, also those of earlier launches. `output` is None in a run without pictures, `summary`, the
    path of summary.json, in a dry run.
    """

    exit_code: int
    records: int
    ok: int
    errors: int
    errors_by_stage: dict[str, int]
    output: Path | None
    log_dir: Path
    summary: Path | None


def begin(log_dir: Path, *, is_repeat: bool = False) -> None:
    """Clear the log folder, and let logs/latest point to it. A repeat, with nothing left to do, leaves the summary there."""
    clear_log(log_dir, keeps_summary=is_repeat)
    point_latest(log_dir)


def clear_log(log_dir: Path, *, keeps_summary: bool = False) -> None:
    """Remove the summary of an earlier launch, and what a killed one was writing, here and in the folder above."""
    for folder in (log_dir, log_dir.parent):
        remove_stale_temporaries(folder)
    if not keeps_summary:
        (log_dir / SUMMARY_FILE).unlink(missing_ok=True)


def planned_result(plan: Plan) -> LaunchResult:
    """The result of a dry run: exit code 0, and the rows that are there already."""
    counts = count_rows(plan.begun)
    return LaunchResult(
        OK, plan.job.num_records, counts.ok, counts.errors, counts.errors_by_stage, plan.output, plan.log_dir, None
    )


def finish(launch: Launch, outcome: Outcome, *, reaches_output: bool = True) -> LaunchResult:
    """Write summary.json, log the total, and return the result. An output that is not reached is not asked for anything."""
    aggregate, engine, refusal = outcome.aggregate, outcome.engine, outcome.refusal
    if aggregate.line_is_due:
        log.info(aggregate.line())
    counts = RowCounts() if is_output_gone(launch) else count_rows(launch.job_file)
    path = launch.log_dir / SUMMARY_FILE
    code = exit_code(launch, counts, engine) if refusal is None else refusal.exit_code
    if engine is None and refusal is None and _is_of_this_output(path, launch):  # nothing was run: what was measured stays
        _amend(path, rows_as_json(counts) | {"exit_code": code, "refusal": None})
    else:
        write_json(path, summarise(launch, outcome, counts, code))
    if launch.output is not None and reaches_output:
        for folder in filter(None, (launch.log_dir, launch.job_log)):
            _copy_job_file(launch.output, folder)
    if launch.job_log is not None:
        is_whole = refusal is None and code in (OK, INCOMPLETE, WITH_ERRORS)  # else the code is of this run, and not of the job
        _amend(launch.job_log / SUMMARY_FILE, rows_as_json(counts) | ({"exit_code": code, "refusal": None} if is_whole else {}))
    log_total(launch, aggregate, engine)
    is_over = refusal is None and (engine is None or engine.signal is None)
    if launch.output is not None:
        log_records(launch, counts, quiet=refusal is not None, shows_rows=is_over)
    log.info(f"summary: {path}")
    return LaunchResult(
        code, launch.job.num_records, counts.ok, counts.errors, counts.errors_by_stage, launch.output, launch.log_dir, path
    )


def _copy_job_file(output: Path, folder: Path) -> None:
    path = job_path(output)
    if isinstance(path, AddressPath):
        (folder / JOB_FILE).write_bytes(output_store(path.parent).read(path.name, JOB_BYTES))
    else:
        shutil.copyfile(path, folder / JOB_FILE)


def summarise(launch: Launch, outcome: Outcome, counts: RowCounts, code: int) -> dict[str, Any]:
    """The content of summary.json."""
    job, engine, refusal = launch.job, outcome.engine, outcome.refusal
    scan = job.dataset.scan if job.dataset else None
    return {
        "job": (launch.job_log or launch.log_dir).name,
        "fingerprint": job.fingerprint,
        "exit_code": code,
        "refusal": None if refusal is None else str(refusal),
        "input": job.config.input,
        "device": {
            "asked": job.config.device,
            "provider": job.choice.provider,
            "reason": job.choice.reason,
            "numbers": list(job.choice.numbers),
            "names": list(job.choice.names),
        },
        "precision": {"asked": job.config.precision, "ran": job.choice.precision, "reason": job.choice.precision_reason},
        "weights": asdict(job.model.card.weights),
        "decode": job.config.decode,
        "records": job.num_records,
        **rows_as_json(counts),
        "replaced_workers": engine.replaced if engine else [],
        "ignored": scan.summary() if scan else [],
        **_plans(launch, engine),
        "output": None if launch.output is None else str(launch.output),
        **outcome.aggregate.measurements(),
    }


def _plans(launch: Launch, engine: Engine | None) -> dict[str, Any]:
    """The plan of threads; on several hosts that of one of them with the workers of all, and each host's own by its name."""
    nodes = engine.nodes if engine else {}
    if not nodes:
        return {"plan": asdict(launch.threads)}
    first, workers = next(iter(nodes.values())), sum(plan.num_devices for plan in nodes.values())
    own = {name: asdict(plan) for name, plan in nodes.items()}
    return {"plan": {**asdict(first), "num_devices": workers}, "nodes": own}


def _is_of_this_output(path: Path, launch: Launch) -> bool:
    """True if the summary at `path` is of an earlier launch of this job into this output."""
    if not path.is_file():
        return False
    try:
        found = read_json(path)
    except BulkinferError as error:
        log.warning(f"{error}: it is written again")
        return False
    return (found.get("fingerprint"), found.get("output")) == (launch.job.fingerprint, str(launch.output))


def _amend(path: Path, changes: dict[str, Any]) -> None:
    """Update the summary of the job's own launch, if there is one; one warning if that is not possible."""
    if not path.is_file():
        return
    try:
        write_json(path, {**read_json(path), **changes})
    except BulkinferError as error:
        log.warning(f"{error}")


def count_rows(job_file: JobFile | None) -> RowCounts:
    """The rows of all published parts; none in a run without pictures."""
    return RowCounts() if job_file is None else job_file.count_rows()


def is_output_gone(launch: Launch) -> bool:
    """True if the results folder was removed or renamed while the job ran. _job.json still records the parts that it held."""
    return launch.output is not None and not isinstance(launch.output, AddressPath) and not launch.output.is_dir()


def rows_as_json(counts: RowCounts) -> dict[str, Any]:
    """The counts under the names of summary.json."""
    return {"ok": counts.ok, "errors": counts.errors, "errors_by_stage": counts.errors_by_stage}


def exit_code(launch: Launch, counts: RowCounts, engine: Engine | None) -> int:
    """0 every record ok; 3 complete with error rows, or places that cannot be read; 1 incomplete; 130 or 143 after a signal."""
    job = launch.job
    if engine and engine.signal is not None:
        return 128 + engine.signal
    if launch.job_file is None:
        return OK
    if not launch.job_file.is_complete or counts.ok + counts.errors != job.num_records:
        return INCOMPLETE
    unreadable = bool(job.dataset and job.dataset.scan and job.dataset.scan.unreadable)
    return WITH_ERRORS if counts.errors or unreadable else OK


def log_total(launch: Launch, aggregate: Aggregate, engine: Engine | None) -> None:
    """Log the total, where the time went, and which workers were replaced."""
    if engine is None:
        log.info("total: nothing left to do")
    else:
        rate = f"{rate_text(aggregate.images_per_s)} ({_describe_start(aggregate)})"
        log.info(f"total: {aggregate.pictures} pictures in {aggregate.running_s:.1f} sec: {rate}")
    if seconds := aggregate.metrics().seconds:
        log.info("thread-seconds: " + ", ".join(f"{stage} {spent:.1f}" for stage, spent in sorted(seconds.items())))
    if launch.output is None:
        log.info(f"{launch.job.config.input}: without {WITHOUT[launch.job.config.input]}")
    for sentence in engine.replaced if engine else ():
        log.info(f"replaced: {sentence}")


def _describe_start(aggregate: Aggregate) -> str:
    """What the rate leaves out, in words."""
    seconds, pictures = aggregate.startup_s, aggregate.warm_up_pictures
    if aggregate.is_all_warm_up:
        return f"start-up {seconds:.1f} sec apart; the warm-up is in it, nothing came after it"
    return f"start-up and warm-up{f' with {pictures} of the pictures' if pictures else ''} {seconds:.1f} sec apart"


def log_records(launch: Launch, counts: RowCounts, *, quiet: bool, shows_rows: bool) -> None:
    """Log whether every record is accounted for, and some of the rows if the launch was not ended early.

    `quiet`: without a warning, because an error already says why not.
    """
    records, accounted = launch.job.num_records, counts.ok + counts.errors
    stages = ", ".join(f"{count} at {stage}" for stage, count in sorted(counts.errors_by_stage.items()))
    missing = f" + {records - accounted} not done" if accounted != records else ""
    log.info(f"records: {records} = {counts.ok} ok + {counts.errors} errors{f' ({stages})' if stages else ''}{missing}")
    if missing and not quiet:
        log.warning(
            f"incomplete: {records - accounted} of {records} records have no row; to continue: {continuing(launch.job.config)}"
        )
    scan = launch.job.dataset.scan if launch.job.dataset else None
    if unreadable := len(scan.unreadable) if scan else 0:
        places = "1 file or folder" if unreadable == 1 else f"{unreadable:,} files or folders"
        log.warning(f"{places} could not be read, see above: the pictures there have no rows")
    job_file, output = launch.job_file, launch.output
    assert job_file is not None, "what has records has a _job.json"
    assert output is not None, "what has records has an output"
    if shows_rows and counts.errors:
        for line in error_lines(output, job_file):
            log.info(line)
        failed_again = launch.job.command == RETRY
        when = "once these files are repaired or replaced" if failed_again else "to run the error rows again"
        log.info(f"  {when}: bulkinfer retry {shell_word(output)}")
    if is_output_gone(launch):
        if not quiet:
            log.warning(f"results: none: {output} was removed or renamed while the job ran")
        return
    log.info(f"results: {output}")
    for line in ok_lines(output, job_file) if shows_rows else ():
        log.info(line)
