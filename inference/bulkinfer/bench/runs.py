"""What a bench runs: the launch of each kind of measurement, over repeated pictures."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from bulkinfer.bench.limits import Limits, measure_limits
from bulkinfer.bench.measurement import Measurement, measure
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError
from bulkinfer.files.addresses import address_of, whole_path
from bulkinfer.host.cores import CoreBudget, ThreadPlan, loader_processes_for
from bulkinfer.launch.auto.choose import settle
from bulkinfer.launch.auto.precision import OFFERED
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.jobs.job import Job, count_records, first_records, identity_of
from bulkinfer.launch.plan import open_network
from bulkinfer.launch.run import write_run
from bulkinfer.records.data_dir import resolve_data_dir
from bulkinfer.records.dataset import Dataset, Partition, open_dataset
from bulkinfer.records.layout import MANIFEST_FILE
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import ARCHIVE_SCHEMA, PLACE_COLUMNS, Entry, entries_table
from bulkinfer.records.place import ADDRESSES, file_of
from bulkinfer.types import Archive, Member, Record
from bulkinfer.worker.protocol import Ready, RunSpec, session_spec

log = logging.getLogger("bulkinfer")

_COMMAND = "bulkinfer bench"
_PICTURES = 1000  # different pictures at most; they are spread evenly over the data set
_RECORDS_PER_CORE_S = 1000  # more than one core prepares in a second
_WARM_UP_S = 0.5  # gives the rate from which the length of a step follows; the first step warms up the rest
FIRST_GUESS = 100.0  # pictures per second of a loader thread, until it is measured


def open_job(config: LaunchConfig) -> Job:
    """The job that is measured, on the device and in the precision that a launch of `config` would take."""
    asked = open_network(config, lambda: resolve_data_dir(config.data_dir, _COMMAND))
    columns = {"image_column": config.image_column, "label_column": config.label_column}
    dataset = open_dataset(resolve_data_dir(config.data_dir, _COMMAND), **columns)
    counts = count_records(dataset, config.limit)
    settled = settle(asked, lambda: first_records(dataset, counts, OFFERED))
    return Job(config, settled.model, settled.choice, dataset, counts, identity_of(asked, dataset), _COMMAND)


@dataclass(frozen=True)
class Bench:
    """One bench: the job it measures, the plan that it starts from, and how many pictures there are."""

    job: Job  # on pictures
    plan: ThreadPlan
    budget: CoreBudget
    log_dir: Path
    seconds: int
    pictures: int

    def run(self, kind: str, plan: ThreadPlan, rate: float | None, name: str = "") -> tuple[Measurement, Ready]:
        """One measurement of a kind of report.KINDS; its logs go into a folder called `name`, by default the kind.

        `rate` is the expected rate of one worker in pictures per second; None: that of its warm-up. Raises RunError if no
        picture is usable, and what measurement.measure raises.
        """
        folder = self.log_dir / (name or kind)
        results = folder / "results"
        results.mkdir(parents=True, exist_ok=True)
        job = self.job
        if kind == "inference":
            job = replace(job, config=replace(job.config, synthetic=True), dataset=None, counts={})
        if kind == "decode":
            plan = decoding_plan(plan, self.budget, job.config.loader_processes)
        run_file = write_run(Launch(job, plan, folder, results if kind == "end_to_end" else None, None, [], ()))
        spec = replace(RunSpec.read(run_file), warm_up_s=_WARM_UP_S)
        if kind == "decode":
            spec = replace(spec, input="decode", warm_up_s=0.0)
        spec.write(run_file)
        try:
            measured, ready = measure(
                run_file,
                plan,
                batch_size=job.config.batch_size,
                num_records=self.job.num_records if kind != "inference" else 1 << 40,
                rate=rate,
                seconds=self.seconds,
            )
        finally:
            shutil.rmtree(results)
        if kind == "end_to_end" and measured.bad == measured.pictures:
            raise RunError(
                f"none of the {measured.pictures} pictures that were tried can be used, so there is nothing to measure: "
                "infer_launch gives the reason for each of them"
            )
        return measured, ready

    def limits(self) -> Limits:
        """What the machine does at most, measured once, for the session of one worker; logs why it could not be measured."""
        job, places = self.job, []
        for partition in job.dataset.partitions if job.dataset else ():
            places += [
                record.place for record in partition.manifest.records(0, min(self.pictures, job.counts[partition.index]))
            ]
        session = session_spec(job.config, job.model.graph, job.choice, self.plan)
        found = measure_limits(session, self.plan.affinity[0], places, job.config)
        if isinstance(found, str):
            log.warning(f"warning: {found}")
            return Limits()
        return found


def warn_of_error_rows(measurements: Sequence[Measurement]) -> None:
    """Log one warning if pictures got error rows: they take little time, so they make everything look faster."""
    bad, pictures = sum(one.bad for one in measurements), sum(one.pictures for one in measurements)
    if bad:
        share = 100 * bad / pictures
        log.warning(f"warning: {share:.1f} % of the pictures end as error rows and count as pictures")


def decoding_plan(plan: ThreadPlan, budget: CoreBudget, loader_processes: int) -> ThreadPlan:
    """The same workers with all cores for their loader threads; one stream takes their batches."""
    threads = max(1, budget.usable // plan.num_devices)
    processes = loader_processes_for(loader_processes, threads)
    return replace(plan, streams=1, threads_per_stream=1, num_workers=threads, loader_processes=processes)


def repeated(dataset: Dataset, folder: Path, num_records: int) -> tuple[Dataset, int]:
    """A data set that repeats some of the pictures, with its manifest in `folder`; and how many different ones it has.

    Workers read it like any other manifest: the measured path holds no code of bench.
    """
    stride = max(1, -(-dataset.num_records // _PICTURES))
    records = [
        record
        for partition in dataset.partitions
        for start in range(0, partition.manifest.num_records, stride)
        for record in partition.manifest.records(start, start + 1)
    ]
    table, archives = _as_table(records)
    table = pa.concat_tables([table] * -(-num_records // len(records)))
    # keys are whole paths, which are relative to this root, or addresses
    root = ADDRESSES if address_of(file_of(records[0].place)) else b"/."
    manifest = Manifest.from_entries(table, root, "manifest", archives)
    path = folder / "0" / MANIFEST_FILE
    path.parent.mkdir(parents=True)
    manifest.write(path)
    return Dataset(folder, (Partition(0, manifest, manifest.root),), dataset.source, manifest.content_hash), len(records)


def _as_table(records: Sequence[Record]) -> tuple[pa.Table, tuple[Archive, ...]]:
    """The records as lines of a manifest, keys and archives by their whole paths."""
    entries = [
        Entry(whole_path(file_of(record.place)).lstrip(b"/"), None, record.label, record.category_ids) for record in records
    ]
    members = [record.place for record in records if isinstance(record.place, Member)]
    table = entries_table(entries)
    if not members:
        return table, ()
    archives = list(dict.fromkeys(member.archive for member in members))
    columns = (
        [archives.index(each.archive) for each in members],
        [each.offset for each in members],
        [each.span for each in members],
    )
    for name, values in zip(PLACE_COLUMNS, columns, strict=True):
        table = table.append_column(ARCHIVE_SCHEMA.field(name), pa.array(values, ARCHIVE_SCHEMA.field(name).type))
    return table, tuple(replace(archive, path=whole_path(archive.path).lstrip(b"/")) for archive in archives)


def enough_records(budget: CoreBudget, seconds: int) -> int:
    """More than can be prepared in one measurement."""
    return _RECORDS_PER_CORE_S * budget.usable * (seconds + 1)
