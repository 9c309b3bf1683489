"""A job: one frozen config bound to a network and a data set, identified by its fingerprint; and _job.json, its authority."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import canonical_json, safe_name
from bulkinfer.host.versions import versions
from bulkinfer.model.lookup import Model
from bulkinfer.results.job_file import json_sha256
from bulkinfer.runtime.devices import Choice, Request
from bulkinfer.runtime.providers import SessionSpec

if TYPE_CHECKING:
    from bulkinfer.files.lease import Lease
    from bulkinfer.host.cores import ThreadPlan
    from bulkinfer.records.manifest import Dataset
    from bulkinfer.types import Step

# Packages that decide what a row holds, each as versions() names it; Python and pyarrow do not.
_DECIDING_PACKAGES = ("bulkinfer", "numpy", "Pillow", "simplejpeg", "onnxruntime", "onnxruntime-gpu", "onnxruntime-ep-openvino")


@dataclass(frozen=True)
class Job:
    """What is asked for, and what `auto` became. `dataset` is None in a run without pictures; `counts` are by partition.

    `command` is what runs it: its warnings begin with that.
    """

    config: LaunchConfig
    model: Model
    request: Request
    choice: Choice  # the first candidate, until the launch has settled it
    dataset: Dataset | None
    counts: dict[int, int]
    identity: dict[str, Any]
    command: str = "infer_launch"

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that decides what the rows hold."""
        return json_sha256(self.identity)

    @property
    def name(self) -> str:
        """<model>-<first 8 of the fingerprint>."""
        return job_name(self.model.card.name, self.fingerprint)

    @property
    def num_records(self) -> int:
        return sum(self.counts.values())

    @property
    def row_bytes(self) -> int:
        """Size of the saved outputs of one record."""
        shapes = self.model.sidecar.outputs
        values = sum(math.prod(map(int, shapes[name][1:])) for name in self.model.card.outputs if name in self.config.save)
        return values * (2 if self.config.save_precision == "fp16" else 4)

    @property
    def reduce_to(self) -> int:
        """The short side in pixels that JPEGs may be decoded at; 0: exactly."""
        return self.model.card.recipe.short_side_needed if self.config.decode == "fast" else 0

    def session_spec(self, plan: ThreadPlan) -> SessionSpec:
        """What the first worker asks of the runtime; the others differ in the device."""
        config, graph = self.config, str(self.model.graph)
        streams, threads = plan.streams, plan.threads_per_stream
        return SessionSpec(
            graph, self.choice.provider, self.choice.precision, streams, threads, config.allow_cpu_nodes, plan.devices[0]
        )


@dataclass(frozen=True)
class Launch:
    """One launch of a job: the plan for this host, where it logs and writes (None: nowhere), what is there and what is to do.

    `description` is the content of _job.json, brought up to date as parts are published. `job_log` is given where `log_dir` is
    not the log folder of the job, but one in it: what lies there is brought up to date too.
    """

    job: Job
    plan: ThreadPlan
    log_dir: Path
    output: Path | None
    description: dict[str, Any]
    todo: list[Step]
    leases: tuple[Lease, ...]  # on `log_dir` and `output`; without them nothing is guarded
    job_log: Path | None = None


def job_name(model_name: str, fingerprint: str) -> str:
    """What a job and the folder of its logs are called."""
    return f"{safe_name(model_name)}-{fingerprint[:8]}"


def make_job(config: LaunchConfig, model: Model, request: Request, choice: Choice, dataset: Dataset | None) -> Job:
    """Bind `config` to its network, devices and data set."""
    counts = {}
    left = config.limit or float("inf")
    for partition in dataset.partitions if dataset else ():
        counts[partition.index] = int(min(left, partition.manifest.num_records))
        left -= counts[partition.index]
    return Job(config, model, request, choice, dataset, counts, _identity(config, model, request, dataset))


def _identity(config: LaunchConfig, model: Model, request: Request, dataset: Dataset | None) -> dict[str, Any]:
    """Every fact that decides what the rows hold, by the name under which a mismatch is reported."""
    card = model.card
    facts = {name: getattr(config, name) for name in ("batch_size", "precision", "limit", "max_pixels",
                                                      "max_file_bytes", "allow_cpu_nodes", "decode")}  # fmt: skip
    if "topk" in config.save:
        facts["top_k"] = min(config.top_k, int(model.sidecar.outputs[card.classified][-1]))
    saves_outputs = bool(set(card.outputs) & set(config.save))
    return {
        **facts,
        "device": request.provider,  # which of its devices decides nothing
        "model_name": card.name,
        "graph_sha256": model.sidecar.sha256,
        "weights_sha256": card.external_data_sha256,
        "recipe": asdict(card.recipe),
        "outputs": card.outputs,
        "labels_sha256": json_sha256(card.labels),
        "save_precision": config.save_precision if saves_outputs else "fp32",
        "save": sorted(set(config.save)),
        "manifest": dataset.content_hash if dataset else config.input,
        **({"skipped": dataset.skipped.sha256} if dataset and dataset.skipped else {}),
    }


def describe_job(job: Job, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The content of _job.json before any part is published."""
    dataset = job.dataset
    return {
        "fingerprint": job.fingerprint,
        "identity": job.identity,
        "config": asdict(job.config),
        "resolved": {
            "provider": job.choice.provider,
            "devices": job.choice.models,
            "precision": job.choice.precision,
            "precision_reason": job.choice.precision_reason,
            "graph_sha256": job.model.sidecar.sha256,
            **resolved,
        },
        "versions": versions(),
        "weights": asdict(job.model.card.weights),
        "source": dataset.source if dataset else job.config.input,
        **({"skipped": asdict(dataset.skipped)} if dataset and dataset.skipped else {}),
        "num_records": job.num_records,
        "partitions": _describe_partitions(job),
        "complete": False,
        "parts": {},
    }


def _describe_partitions(job: Job) -> dict[str, Any]:
    """By partition number: a PartitionEntry."""
    return {
        str(partition.index): {
            "num_records": job.counts[partition.index],
            "keys_sha256": partition.manifest.keys_sha256(job.counts[partition.index]),
            "manifest_sha256": partition.manifest.content_hash,
        }
        for partition in (job.dataset.partitions if job.dataset else ())
    }


def check_same_job(output: Path, found: dict[str, Any], job: Job) -> None:
    """Raises UsageError that names each differing field if the output directory belongs to another job."""
    if found["fingerprint"] == job.fingerprint:
        return
    differing = differences(found["identity"], job.identity)
    is_asked = differing.keys() <= {"precision", "device"}
    advice = " ".join(f"--{name} {found['identity'][name]}" for name in differing) + " continues it" if is_asked else ""
    if differing.keys() == {"manifest"}:
        advice = f"--skip_done {output} --output NEW runs what has no ok row there"
    raise UsageError(
        f"{output} holds the results of another job; it differs in {'; '.join(differing.values())}: "
        "give another --output, or --overwrite to remove them" + (f"; {advice}" if advice else "")
    )


def differences(there: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()) -> dict[str, str]:
    """The fields in which two identities differ, each with both values in words; those of `free` may."""
    there, now = fields_of(there), fields_of(now)
    return {
        name: f"{name} ({short(there.get(name))} there, {short(now.get(name))} now)"
        for name in sorted({*there, *now} - {*free})
        if canonical_json(there.get(name)) != canonical_json(now.get(name))
    }


def version_changes(found: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Packages that decide what a row holds and have another version `now` than in `found`, as "Pillow 12.0 (now 13.0)".

    Both are what versions() gave. One that was not there in the beginning cannot have taken part, and is left out.
    """
    return [
        f"{name} {found[name]} (now {now.get(name, 'not installed')})"
        for name in _DECIDING_PACKAGES
        if name in found and found[name] != now.get(name)
    ]


def fields_of(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity by field; those of the recipe and of the outputs as recipe.mean and so on."""
    found: dict[str, Any] = {}
    for name, value in identity.items():
        found |= {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
    return found


def short(value: Any) -> str:
    """A value for messages: its JSON, cut."""
    text = canonical_json(value)
    return text if len(text) <= 24 else text[:12].strip('"') + "…"
