"""The end of a launch: is every record accounted for, what does it say on stdout and in summary.json, which exit code."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inference.aggregate import Aggregate
from inference.engine import Engine
from inference.job import JOB_FILE, Launch
from inference.paths import temporary_path, write_json
from inference.runlog import say, warn

OK, INCOMPLETE, WITH_ERRORS = 0, 1, 3  # exit codes; 2 is wrong use, 130 and 143 follow a signal


def finish(launch: Launch, aggregate: Aggregate, engine: Engine | None) -> int:
    """Print the total, write summary.json, point logs/latest here; returns the exit code."""
    job, log_dir, output, description = launch.job, launch.log_dir, launch.output, launch.description
    if aggregate.line_is_due:
        say(aggregate.line())
    counts = count_rows(description)
    code = exit_code(launch, counts, engine)
    summary = {
        "job": log_dir.name,
        "fingerprint": job.fingerprint,
        "exit_code": code,
        "synthetic": output is None,
        "weights": asdict(job.model.card.weights),
        "records": job.num_records,
        **counts,
        "replaced_workers": engine.replaced if engine else [],
        "ignored": job.dataset.scan.summary() if job.dataset and job.dataset.scan else [],
        "plan": asdict(launch.plan),
        "output": str(output) if output else None,
        **aggregate.measurements(),
    }
    write_json(log_dir / "summary.json", summary)
    if output is not None:
        shutil.copyfile(output / JOB_FILE, log_dir / JOB_FILE)
    point_latest(log_dir)
    tell(launch, aggregate, counts, engine)
    say(f"summary: {log_dir / 'summary.json'}")
    return code


def count_rows(description: dict[str, Any]) -> dict[str, Any]:
    """ok and error rows over all published parts, errors by stage."""
    parts = description.get("parts", {}).values()
    stages: Counter[str] = sum((Counter(part["stages"]) for part in parts), Counter())
    return {"ok": sum(part["ok"] for part in parts), "errors": stages.total(), "errors_by_stage": dict(stages)}


def exit_code(launch: Launch, counts: dict[str, Any], engine: Engine | None) -> int:
    """0 every record ok; 3 complete with error rows or unreadable folders; 1 incomplete; 130 or 143 after a signal."""
    job = launch.job
    if engine and engine.signal is not None:
        return 128 + engine.signal
    if launch.output is None:
        return OK
    if not launch.description["complete"] or counts["ok"] + counts["errors"] != job.num_records:
        return INCOMPLETE
    unreadable = bool(job.dataset and job.dataset.scan and job.dataset.scan.unreadable)
    return WITH_ERRORS if counts["errors"] or unreadable else OK


def tell(launch: Launch, aggregate: Aggregate, counts: dict[str, Any], engine: Engine | None) -> None:
    """The last lines of stdout."""
    job, output = launch.job, launch.output
    rate = f"{aggregate.images_per_s:.1f} images/sec (start-up and warm-up {aggregate.startup_s:.1f} sec apart)"
    if engine is None:
        say("total: nothing left to do")
    else:
        say(f"total: {aggregate.pictures} pictures in {aggregate.running_s:.1f} sec: {rate}")
    stages = aggregate.measurements()["stage_thread_seconds"]
    if stages:
        say("thread-seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages.items()))
    if output is None:
        say("synthetic: without reading, decoding, preparing and writing")
        return
    accounted = counts["ok"] + counts["errors"]
    stages = ", ".join(f"{count} at {stage}" for stage, count in sorted(counts["errors_by_stage"].items()))
    say(f"records: {job.num_records} = {counts['ok']} ok + {counts['errors']} errors{f' ({stages})' if stages else ''}"
        + (f" + {job.num_records - accounted} not done" if accounted != job.num_records else ""))  # fmt: skip
    if accounted != job.num_records:
        warn(f"infer_launch: incomplete: {job.num_records - accounted} of {job.num_records} records have no row; "
             "the same command continues")  # fmt: skip
    for sentence in engine.replaced if engine else ():
        say(f"replaced: {sentence}")
    say(f"results: {output}")


def point_latest(log_dir: Path) -> None:
    """logs/latest -> the newest job, replaced in one move."""
    link = log_dir.parent / "latest"
    temporary = temporary_path(link)
    os.symlink(log_dir.name, temporary)
    os.replace(temporary, link)
