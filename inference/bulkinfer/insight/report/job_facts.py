"""What a job was, by its records: network, weights, device, precision, plan, command, versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.json_file import read_json
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.launch.jobs.begun_config import begun_config, command_with
from bulkinfer.model.card import RANDOM_WEIGHTS
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.log_folder import SUMMARY_FILE
from bulkinfer.results.status_file import STATUS_FILE
from bulkinfer.types import printable_path


@dataclass(frozen=True)
class Fact:
    """A line of the page: what it is, its value, and whether the value is code: a hash, a path or a command."""

    term: str
    value: str
    is_code: bool = False


@dataclass(frozen=True)
class Facts:
    """Facts under one heading."""

    heading: str
    facts: tuple[Fact, ...]


def read_records(log_dir: Path | None) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """summary.json and status.json of a job, {} where there is none, and sentences that say what the page lacks, and why."""
    if log_dir is None:
        return {}, {}, ["The log folder of this job was not found: the page has no throughput and no stage times."]
    summary, faults = _read(log_dir / SUMMARY_FILE)
    status, more = _read(log_dir / STATUS_FILE)
    if not summary and not faults:
        what = printable_path(log_dir / SUMMARY_FILE)
        faults = [f"{what} is not there: the job has not ended, or its launcher was killed."]
    return summary, status, faults + more


def _read(path: Path) -> tuple[dict[str, Any], list[str]]:
    if not path.exists():
        return {}, []
    try:
        return read_json(path), []
    except BulkinferError as error:
        return {}, [f"{error}."]


def facts_of(found: FoundJob, summary: dict[str, Any], status: dict[str, Any]) -> tuple[Facts, ...]:
    """All facts of a job, under their headings."""
    return (
        Facts("Network", tuple(_network(found.job))),
        Facts("Where it ran", (*_host(status), *_device(found.job, summary))),
        Facts("Pictures and rows", tuple(_places(found))),
        Facts("Versions", tuple(Fact(name, version) for name, version in found.job.versions.items())),
    )


def command_of(found: FoundJob) -> str:
    """The command that began the job, with the options that are not the defaults."""
    return command_with(begun_config(found.job, found.output))


def _network(job: JobFile) -> list[Fact]:
    identity, weights = job.identity, job.content.get("weights")
    facts = [Fact("Name", job.model_name), Fact("Batch size", str(identity.get("batch_size")))]
    if isinstance(weights, dict):
        source = str(weights.get("source"))
        facts.append(Fact("Weights", "random: the answers mean nothing" if source == RANDOM_WEIGHTS else source))
        facts += [Fact("Origin of the weights", str(weights["origin"]))] if weights.get("origin") else []
        facts += [Fact("sha256 of the weights", str(weights["sha256"]), True)] if weights.get("sha256") else []
    graph = job.resolved.get("graph_sha256", identity.get("graph_sha256"))
    return [*facts, Fact("sha256 of the graph", str(graph), True), Fact("Fingerprint of the job", job.fingerprint, True)]


def _host(status: dict[str, Any]) -> list[Fact]:
    """Where and when the last launch ran, if it left a status.json."""
    names = {"host": "Host of the last launch", "started": "Started", "updated": "Last sign of life"}
    return [Fact(term, str(status[name])) for name, term in names.items() if status.get(name)]


def _device(job: JobFile, summary: dict[str, Any]) -> list[Fact]:
    resolved, device, plan = job.resolved, summary.get("device", {}), summary.get("plan", {})
    facts = [Fact("Device", f"{resolved['provider']}: {', '.join(map(str, resolved.get('devices', [])))}".rstrip(": "))]
    facts += [Fact("Why this device", str(device["reason"]))] if device.get("reason") else []
    facts += [Fact("Backend", str(resolved["backend"]))] if resolved.get("backend") else []
    facts += [Fact("Precision", str(resolved["precision"]))] if resolved.get("precision") else []
    facts += [Fact("Why this precision", str(resolved["precision_reason"]))] if resolved.get("precision_reason") else []
    if plan:
        workers = int(plan.get("num_devices", 1))
        shown = f"{workers} worker{'s' if workers > 1 else ''}, each {plan.get('streams')} streams x "
        shown += f"{plan.get('threads_per_stream')} threads and {plan.get('num_workers')} loader threads"
        facts.append(Fact("Plan", shown))
    return facts


def _places(found: FoundJob) -> list[Fact]:
    job = found.job
    facts = [Fact("Pictures", job.source), Fact("Results", printable_path(found.output), True)]
    facts += [Fact("Logs", printable_path(found.log_dir), True)] if found.log_dir else []
    facts.append(Fact("Decoding", str(job.identity.get("decode", "exact"))))
    facts.append(Fact("Columns", ", ".join(map(str, job.identity.get("save", [])))))
    return facts
