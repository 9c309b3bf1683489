"""bulkinfer bench --spec FILE: the entries of a file of benchmarks, chosen, run, kept, and compared with a baseline."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bulkinfer.bench.folder import machine_conditions
from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.spec.baseline import fallen_behind, judged, read_baseline
from bulkinfer.bench.spec.commands import folder_of, unset_variables
from bulkinfer.bench.spec.entry import Entry
from bulkinfer.bench.spec.kept import Kept, opened, resume_command
from bulkinfer.bench.spec.missing import missing
from bulkinfer.bench.spec.result_files import write_results
from bulkinfer.bench.spec.run_entry import DONE, FAILED, LEFT_OUT, Settings, description_of, run_entry
from bulkinfer.bench.spec.spec_file import Spec, read_spec
from bulkinfer.bench.spec.tables import table_of
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.files.latest_link import point_latest
from bulkinfer.host.cores import core_budget
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")

_OTHERS = ("torch", "torchvision", "timm", "ray")
CONVERGENCE = "_conv"  # ends the name of an entry that trains for days


def bench_spec(config: BenchConfig) -> int:
    """Run the chosen entries; returns 0. Raises UsageError or RunError if one failed or fell behind, after all have run."""
    spec = read_spec(config.spec, is_quick=config.quick)
    entries = chosen(spec, config.benchmark)
    baseline = read_baseline(config.baseline, entries) if config.baseline else {}
    lacking = {entry.name: _lacking(entry, spec) for entry in entries}
    _report_plan(entries, lacking)
    if config.dry_run:
        return 0
    if all(lacking.values()):
        raise UsageError(f"none of the entries can run here: {entries[0].name} needs {', '.join(lacking[entries[0].name])}")
    loads = [os.getloadavg()]
    conditions = {**machine_conditions(config, core_budget()), "is_quick": config.quick}
    conditions["versions"] |= _versions_of_others()
    try:
        with opened(Path(config.log_path), spec.path, conditions, is_resumed=config.resume) as kept:
            results = _run_all(config, spec, entries, lacking, kept)
            loads.append(os.getloadavg())
            behind = fallen_behind(results, baseline)
            found = {"spec": str(spec.path), **conditions, "load_averages": loads, "benchmarks": results}
            path = write_results(kept.folder, found, behind)
            point_latest(kept.folder)
    except KeyboardInterrupt:
        log.info(f"finished entries are kept; the others: {resume_command(config)}")
        raise
    if config.baseline:
        log.info(f"baseline: {judged(results, baseline)} ratio(s) compared with {printable_path(config.baseline)}")
    log.info(f"results: {printable_path(path)}")
    _require_success(results, behind)
    return 0


def chosen(spec: Spec, patterns: Sequence[str]) -> list[Entry]:
    """The entries that a pattern names, all without one; those that train until they converge only by a pattern.

    Raises UsageError with the names of all entries for a pattern that matches none.
    """
    names = [entry.name for entry in spec.entries]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"no entry of {printable_path(spec.path)} matches {pattern!r}; there are {', '.join(names)}")
    if patterns:
        return [entry for entry in spec.entries if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns)]
    for name in names:
        if name.endswith(CONVERGENCE):
            log.info(f"{name}: is left out, since it trains until it converges: name it to run it")
    found = [entry for entry in spec.entries if not entry.name.endswith(CONVERGENCE)]
    if not found:
        raise UsageError(
            f"{printable_path(spec.path)} has only entries that train until they converge: name one of {', '.join(names)}"
        )
    return found


def _lacking(entry: Entry, spec: Spec) -> list[str]:
    """What the entry needs and this machine lacks. Logs what is left out of it."""
    is_known = not unset_variables(entry)
    folder, note = folder_of(entry, spec.path) if is_known else (spec.path.parent, "")
    for line in (*entry.notes, *filter(None, [note])):
        log.info(f"{entry.name}: {line}")
    return missing(entry, folder)


def _report_plan(entries: Sequence[Entry], lacking: Mapping[str, Sequence[str]]) -> None:
    for entry in entries:
        variants = ", ".join(variant.name for variant in entry.variants)
        named = f": {variants}" if variants != entry.name else ""
        if needed := lacking[entry.name]:
            log.info(f"{entry.name}: cannot run here, it needs {', '.join(needed)}")
        else:
            log.info(f"{entry.name}: {entry.num_runs} round(s) of {len(entry.variants)} variant(s){named}")


def _run_all(
    config: BenchConfig, spec: Spec, entries: Sequence[Entry], lacking: Mapping[str, Sequence[str]], kept: Kept
) -> dict[str, Any]:
    """Entry -> its result. Logs the table of each."""
    results: dict[str, Any] = {}
    settings = Settings(spec.path, kept.folder, config.timeout_s)
    for entry in entries:
        if needed := lacking[entry.name]:
            reason = f"it needs {', '.join(needed)}"
            results[entry.name] = {**description_of(entry), **_without_figures(LEFT_OUT, reason)}
            continue
        if (earlier := kept.finished(entry)) is not None:
            log.info(f"{entry.name}: was finished before")
            results[entry.name] = earlier
            continue
        if config.stop_on_error and (failed := [name for name, each in results.items() if each["status"] == FAILED]):
            results[entry.name] = {**description_of(entry), **_without_figures(LEFT_OUT, f"{failed[0]} failed before it")}
            continue
        kept.room_for(entry)
        result = run_entry(entry, settings)
        kept.keep(entry, result)
        results[entry.name] = result
        for line in ["", *table_of(entry.name, result), ""] if result["status"] == DONE else [f"failed: {result['reason']}"]:
            log.info(line)
    return results


def _versions_of_others() -> dict[str, str]:
    """Versions of packages that change the figures of a training, or of another program that a command runs."""
    found = {}
    for package in _OTHERS:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _without_figures(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "exit_code": 0, "runs": [], "figures": {}, "ratios": []}


def _require_success(results: Mapping[str, Any], behind: Mapping[str, Sequence[str]]) -> None:
    """Raises the error of what failed: a UsageError if the file of benchmarks is at fault."""
    failed = {name: result for name, result in results.items() if result["status"] == FAILED}
    if failed:
        first = next(iter(failed.values()))
        worst = max(result["exit_code"] for result in failed.values())
        kind: type[BulkinferError] = UsageError if worst == UsageError.exit_code else RunError
        more = f"; {len(failed) - 1} more failed: {', '.join([*failed][1:])}" if len(failed) > 1 else ""
        raise kind(f"{first['reason']}{more}")
    if behind:
        sentences = [f"{name}: {sentence}" for name, several in behind.items() for sentence in several]
        raise RunError(f"{len(sentences)} ratio(s) fell behind the baseline by more than their spread: {'; '.join(sentences)}")
