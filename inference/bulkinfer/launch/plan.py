"""The plan of a launch: the job, its threads, and where it logs and writes. Nothing is written yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig, RunConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import place_path
from bulkinfer.host.cores import ThreadPlan, check_threads, core_budget
from bulkinfer.host.install_hint import install_command
from bulkinfer.launch.auto.choose import Settled, Unsettled, find_network, settle, settle_as_begun
from bulkinfer.launch.auto.precision import OFFERED
from bulkinfer.launch.engines.ray_address import require_answer
from bulkinfer.launch.engines.ray_cluster import require_ray
from bulkinfer.launch.jobs.begun_config import leaving_out
from bulkinfer.launch.jobs.earlier_jobs import go_on_with_earlier, refuse_changed_folder
from bulkinfer.launch.jobs.job import (
    WITHOUT,
    Job,
    count_records,
    first_records,
    identity_of,
    joined_identity,
    resolved_there,
)
from bulkinfer.launch.jobs.output_place import (
    refuse_inside_partition,
    require_apart_from_pictures,
    require_places,
    warn_of_foreign_files,
)
from bulkinfer.launch.jobs.saved_manifest import listed_before
from bulkinfer.launch.jobs.shards import refuse_other_job, shard_of, shards_beside, with_shard
from bulkinfer.launch.jobs.skip_done import check_settled, with_earlier_folders, without_done
from bulkinfer.launch.tuned_flags import warn_if_tuned_elsewhere
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.data_dir import resolve_data_dir
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.records.sources.folder import counted
from bulkinfer.records.sources.labels import is_annotations
from bulkinfer.results.job_file import JobFile, job_path, json_sha256, read_begun
from bulkinfer.results.log_folder import RESULTS, dated, find_log_dir, job_name
from bulkinfer.runtime.devices import AUTO, asked_threads, parse_device, plan_workers

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True)
class Plan:
    """What a launch will do.

    `output` is None in a run without pictures. `begun` is the _job.json that lay there when the plan was made; None if there
    was none, or --overwrite will remove it. The plan holds no lock: `claim` reads that file again under one.
    """

    job: Job
    threads: ThreadPlan
    log_dir: Path
    output: Path | None
    begun: JobFile | None


def plan_launch(config: LaunchConfig) -> Plan:
    """The plan of a launch of `config`. Raises UsageError or RunError if it cannot run, or its output is another job's."""
    config = with_earlier_folders(check_at_once(config))
    # before the pictures are scanned: what cannot run is refused at once
    has_pictures = config.input == "pictures"
    asked = open_network(
        config, (lambda: resolve_data_dir(config.data_dir, config.command)) if has_pictures else (lambda: None)
    )
    if not has_pictures:
        return plan_job(asked, None, None)
    begun = read_begun(place_path(config.output), config.log_path) if config.output and not config.overwrite else None
    shards, dataset = shards_beside(config, begun), open_pictures(asked, begun)
    if shards is not None:
        refuse_other_job(shards, joined_identity(identity_of(asked, dataset), shards.job))
    plan = plan_job(asked, dataset, begun or (shards.job if shards else None))
    if not (config.dry_run and config.precision == AUTO):  # in a dry run the precision may not be judged yet
        check_settled(plan.job)
    return plan


def check_at_once(config: LaunchConfig) -> LaunchConfig:
    """What a launch of `config` needs that takes no time to check; returns it with its shard.

    Raises UsageError for a shard that cannot be, places that are not for logs or results, and more threads than can be served.
    """
    config = with_shard(config)
    check_ray(config)
    require_places(config)
    check_threads(core_budget(), **asked_threads(config))
    return config


def check_ray(config: LaunchConfig) -> None:
    """Raises UsageError if options contradict --engine ray, or there is no Ray."""
    if config.engine != "ray":
        if config.ray_address:
            raise UsageError(f"--ray_address {config.ray_address} belongs to --engine ray: give that too")
        return
    if parse_device(config.device, config.precision).numbers:
        raise UsageError(f"--device {config.device}: Ray picks the devices of its nodes: leave the numbers out")
    require_ray()
    require_answer(config.ray_address)


def open_network(config: LaunchConfig, before_making: Callable[[], object] = lambda: None) -> Unsettled:
    """The network of `config` and the devices that could run it.

    `before_making` is called before a missing graph is made: it refuses a wrong --data_dir, for example.
    Raises UsageError if something that the network needs is missing.
    """
    if config.decode == "fast":
        require_fast_decoder()
    return find_network(config, before_making)


def require_fast_decoder() -> None:
    """Raises UsageError that names the package that --decode fast lacks here."""
    try:
        from bulkinfer.images.jpeg import require_turbo  # brings Pillow, which the launcher has no other use for
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise UsageError(f"--decode fast needs Pillow, which is not installed: {install_command(None)}") from None
    require_turbo()


def open_pictures(asked: Unsettled, begun: JobFile | None) -> Dataset:
    """The pictures of the job, without those that --skip_done names (see with_earlier_folders).

    An unfinished job, `begun` in --output or the one found without that option, goes on with what it listed, if only its folder
    of pictures has changed since. Raises UsageError if a finished one in --output differs in that alone.
    """
    config = asked.config
    dataset = open_dataset(
        resolve_data_dir(config.data_dir, config.command), labels=_labels_of_rows(config), image_column=config.image_column,
        label_column=config.label_column,
    )  # fmt: skip
    if config.skip_done:
        dataset = without_done(config, identity_of(asked, dataset), dataset)
    elif not config.output and not config.overwrite:
        return go_on_with_earlier(config, identity_of(asked, dataset), dataset)
    if begun is None:
        return dataset
    if (listed := listed_before(config, identity_of(asked, dataset), dataset, begun)) is None:
        if not config.skip_done:
            refuse_changed_folder(config, identity_of(asked, dataset), dataset, begun)
        return dataset
    log.warning(
        f"warning: {listed.root} has changed since the job in {config.output} began: it goes on with the "
        f"{listed.num_records} pictures listed then; to run what came since, once it is done: "
        f"{leaving_out(config, place_path(config.output))}"
    )
    return listed


def _labels_of_rows(config: LaunchConfig) -> str:
    """What fills the column label: not annotations of bulkinfer run, where a picture may have several categories."""
    return "" if isinstance(config, RunConfig) and is_annotations(config.labels) else config.labels


def plan_job(asked: Unsettled, dataset: Dataset | None, begun: JobFile | None, command: str = "") -> Plan:
    """The plan of the job on `dataset` (None: without pictures), going on with what `begun` in --output has done.

    `command` is what was typed; empty: that of the config. Raises UsageError if `begun` is another job, or the output lies in
    a partition.
    """
    config = asked.config
    identity = joined_identity(identity_of(asked, dataset), begun)
    log_dir = choose_log_dir(config, asked.model.card.name, json_sha256(identity))
    output = None if dataset is None else place_path(config.output or log_dir / RESULTS)
    if output is not None and not config.output and not config.overwrite:
        begun = read_begun(output, config.log_path)  # the default folder is known only now: the fingerprint leads to it
    refuse_inside_partition(dataset, output or log_dir)
    if begun is None:
        require_apart_from_pictures(dataset, output)
        warn_of_foreign_files(output)
    counts = count_records(dataset, config.limit)
    if begun is not None and output is not None:
        settled = _settle_as_begun(asked, begun, output, identity)
    else:
        settled = settle(asked, lambda: first_records(dataset, counts, OFFERED))
    if begun is not None and dataset is not None and begun.source != dataset.source:
        log.warning(
            f"warning: the job in {output} began on {begun.source}; its rows stay, because names and sizes of "
            "the pictures are the same"
        )
    threads = plan_workers(config, settled.choice, core_budget())
    job = Job(
        config,
        settled.model,
        settled.choice.only(threads.devices),
        dataset,
        counts,
        identity,
        command or config.command,
        shard_of(config),
    )
    return Plan(job, threads, log_dir, output, begun)


def _settle_as_begun(asked: Unsettled, begun: JobFile, output: Path, identity: dict[str, Any]) -> Settled:
    resolved = resolved_there(begun, output, identity, asked.config)
    ran = resolved.get("precision", asked.config.precision)
    return settle_as_begun(asked, resolved["provider"], ran, str(job_path(output)), resolved.get("backend", ""))


def choose_log_dir(config: LaunchConfig, model_name: str, fingerprint: str) -> Path:
    """The log folder of the job, if there is one, or its name; runs without pictures never resume, and get a new one."""
    log_path, name = Path(config.log_path), job_name(model_name, fingerprint)
    output = place_path(config.output) if config.output else None
    found = find_log_dir(log_path, name, fingerprint, output) if config.input == "pictures" else None
    return found or dated(log_path, name)


def announce(plan: Plan) -> None:
    """Log what will run, on what, and where the results go."""
    job, dataset = plan.job, plan.job.dataset
    card, config = job.model.card, job.config
    log.info(
        f"model: {card.name}, batch size {config.batch_size}, weights {card.weights.source} (sha256 {card.weights.sha256[:12]})"
    )
    log.info(f"device: {job.choice}")
    log.info(f"precision: {job.choice.precision} ({job.choice.precision_reason})")
    threads = "the workers of each node follow from its own" if config.engine == "ray" else plan.threads
    log.info(f"cores: {core_budget()}; {threads}")
    warn_if_tuned_elsewhere(job, plan.threads.num_devices, core_budget())
    if dataset is None:
        log.info(f"input: {config.input}, without {WITHOUT[config.input]}; {config.iterations} step(s) a worker")
    else:
        _announce_pictures(job, dataset)
    log.info(f"job: {plan.log_dir.name}, fingerprint {job.fingerprint}")
    if plan.output is not None:
        log.info(f"output: {plan.output}")


def _announce_pictures(job: Job, dataset: Dataset) -> None:
    if skipped := dataset.skipped:
        log.info(
            f"--skip_done: {counted(skipped.num_records, 'record', 'has', 'have')} ok rows in {', '.join(skipped.outputs)}"
        )
    limited = f", the first {sum(job.counts.values())} of them" if job.config.limit else ""
    log.info(f"input: {dataset.source}: {dataset.num_records} record{'s' * (dataset.num_records != 1)}{limited}")
    if job.shard is not None:
        log.info(f"shard: {job.shard}, {job.num_records} of these records")
    for line in dataset.scan.summary() if dataset.scan else ():
        log.info(f"  {line}")
    for line in dataset.scan.unreadable_lines() if dataset.scan else ():
        log.warning(line)
    log.info(f"decode: {describe_decoding(job.config, job.model.card.recipe)}")
    if job.model.card.weights.is_random:
        log.warning("warning: the weights are random; classes and scores mean nothing, only the speed does")


def describe_decoding(config: LaunchConfig, recipe: Recipe) -> str:
    """What --decode comes to with this recipe."""
    if config.decode == "exact":
        return "exact"
    if not recipe.short_side_needed:
        return "fast, which this network's recipe does not allow: every picture is decoded exactly"
    return f"fast: JPEGs at a reduced size whose short side has {recipe.short_side_needed} pixels or more"
