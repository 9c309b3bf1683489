"""bulkinfer bench: how fast this host decodes, infers, and does both; with --tune, which plan of threads is fastest.

Every measurement starts the worker processes of infer_launch once, with its engine, plan, loader, session and publisher. The
decode ceiling has a stand-in for the session and all cores for loader threads, the inference ceiling is a synthetic run, and
end to end writes rows. Steps last a fifth of --seconds. They are shorter than in a long run, so writing has more weight here.
"""

from __future__ import annotations

import logging
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bulkinfer.bench.folder import BENCH_FILE, ending_on_signals, machine_conditions, measured_in
from bulkinfer.bench.measurement import Measurement, ignore_stop_signals
from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.report import KINDS, Throughput, limit_lines, report, throughput
from bulkinfer.bench.runs import FIRST_GUESS, Bench, enough_records, open_job, repeated, warn_of_error_rows
from bulkinfer.bench.tune import tune
from bulkinfer.files.atomic import safe_name
from bulkinfer.files.json_file import write_json
from bulkinfer.host.cores import core_budget
from bulkinfer.launch.jobs.job import Job, count_records
from bulkinfer.launch.jobs.output_place import refuse_inside_partition
from bulkinfer.launch.tuned_flags import require_place, write_flag_file
from bulkinfer.results.log_folder import dated
from bulkinfer.runtime.devices import plan_workers
from bulkinfer.runtime.session import describe_proof
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")


def bench(config: BenchConfig) -> int:
    """Measure, and log the result; returns the exit code. Raises StoppedError after a signal, and removes its files."""
    with ending_on_signals():
        if config.tune:
            require_place(config.model_path, config.write_flags)
        job = open_job(config.launch_config())
        log_dir = dated(Path(config.log_path), f"bench-{safe_name(job.model.card.name)}")
        refuse_inside_partition(job.dataset, log_dir)
        with measured_in(log_dir):
            run(config, prepare(config, log_dir, job))
    return 0


def prepare(config: BenchConfig, log_dir: Path, job: Job) -> Bench:
    """The job on repeated pictures; logs what will be measured."""
    budget = core_budget()
    plan = plan_workers(job.config, job.choice, budget)
    assert job.dataset is not None, "a bench is on pictures"
    dataset, pictures = repeated(job.dataset, log_dir / "pictures", enough_records(budget, config.seconds))
    card = job.model.card
    log.info(f"model: {card.name}, batch size {config.batch_size}, weights {card.weights.source}")
    log.info(f"device: {job.choice}")
    log.info(f"precision: {job.choice.precision} ({job.choice.precision_reason})")
    log.info(f"cores: {budget}; {plan}")
    log.info(
        f"pictures: {pictures} of {job.dataset.num_records} ({job.dataset.source}), again and again, so that they come "
        "from the page cache: reading from a disk or a network may cost more"
    )
    if card.weights.is_random:
        log.info("weights: random; the speed is that of real ones")
    job = replace(job, dataset=dataset, counts=count_records(dataset, 0))
    return Bench(job, plan, budget, log_dir, config.seconds, pictures)


def run(config: BenchConfig, place: Bench) -> None:
    """Measure, log, and write bench.json and the flag file: both, or neither after a signal."""
    loads = [os.getloadavg()]
    flag_file = Path(config.write_flags or place.log_dir / "tuned.flags")
    found: dict[str, Any]
    if config.tune:
        plan, lines, tuned = tune(place, tune_s=config.tune_s, max_rounds=config.rounds)
        found = {"tune": {**tuned, "flag_file": str(flag_file)}}
    else:
        rounds, found = measure_rounds(place, config.rounds)
        total = throughput(rounds, place.plan, place.budget.usable, shared=not place.job.choice.is_counted)
        limits = place.limits()
        for line in [*report(total, place.plan), *limit_lines(total, limits, place.job.choice.precision)]:
            log.info(line)
        warn_of_error_rows([measured["end_to_end"] for measured in rounds])
        found |= {**in_json(total, rounds), "limits": asdict(limits)}
    loads.append(os.getloadavg())
    ignore_stop_signals()
    if config.tune:
        write_flag_file(flag_file, place.job, plan, place.budget, lines)
        log.info(f"flags: infer_launch --flagfile {shell_word(flag_file)}")
    path = place.log_dir / BENCH_FILE
    write_json(path, {**conditions(config, place), "load_averages": loads, **found})
    log.info(f"bench: {path}")


def measure_rounds(place: Bench, count: int) -> tuple[list[dict[str, Measurement]], dict[str, Any]]:
    """All kinds of measurement in turn, `count` times; and the proof of what the workers ran."""
    log.info(f"measuring: {count} round(s) of {', '.join(KINDS.values())}; {place.seconds} s each")
    rounds: list[dict[str, Measurement]] = []
    ran: dict[str, Any] = {}
    rates: dict[str, float] = {"decode": FIRST_GUESS * place.plan.num_workers}
    for number in range(1, count + 1):
        measured = {}
        for kind in KINDS:
            if kind == "end_to_end":  # cannot be faster than its parts
                rates.setdefault(kind, min(rates["decode"], rates["inference"]))
            one, ready = place.run(kind, place.plan, rates.get(kind))
            measured[kind] = one
            rates[kind] = one.images_per_s / place.plan.num_devices
            if kind == "inference" and not ran:
                ran = {"ran": ready.proof, "load_s": ready.load_s}
                log.info(f"worker 0: {describe_proof(ready.proof)}")
        rounds.append(measured)
        rates_now = ", ".join(f"{KINDS[kind]} {one.images_per_s:.1f}" for kind, one in measured.items())
        log.info(f"round {number}: {rates_now} images/sec")
    return rounds, ran


def conditions(config: BenchConfig, place: Bench) -> dict[str, Any]:
    """The conditions of the measurements: everything that the figures depend on."""
    job, machine = place.job, machine_conditions(config, place.budget)
    return {
        **machine,
        "hardware": {**machine["hardware"], "devices": list(job.choice.names)},
        "model": {
            "name": job.model.card.name,
            "graph_sha256": job.model.sidecar.sha256,
            "weights": asdict(job.model.card.weights),
        },
        "device": asdict(job.choice),
        "plan": asdict(place.plan),
        "pictures": {"source": job.dataset.source if job.dataset else "", "different": place.pictures, "page_cache": "warm"},
    }


def in_json(total: Throughput, rounds: list[dict[str, Measurement]]) -> dict[str, Any]:
    """The figures with every run behind them."""
    return {
        "num_runs": len(rounds) * len(KINDS),
        "images_per_s": {kind: asdict(value) for kind, value in total.rate.items()},
        "cpu_s_per_picture": {kind: asdict(value) for kind, value in total.cpu_s.items()},
        "ideal_images_per_s": total.ideal,
        "share_of_ideal": total.share_of_ideal,
        "cpu_s_over_parts": total.cpu_over_parts,
        "share_of_cores_used": total.busy,
        "bottleneck": total.bottleneck,
        "split": total.split,
        "rounds": [{kind: one.as_json() for kind, one in measured.items()} for measured in rounds],
    }
