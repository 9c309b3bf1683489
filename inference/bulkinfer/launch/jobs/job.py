"""A job: one config bound to a network, a device and a data set, identified by its fingerprint."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.host.versions import versions
from bulkinfer.launch.auto.choose import Unsettled
from bulkinfer.launch.jobs.begun_config import leaving_out
from bulkinfer.model.lookup import Model
from bulkinfer.records.dataset import Dataset
from bulkinfer.results.job_file import JobFile, job_path, json_sha256
from bulkinfer.results.job_kind import differences
from bulkinfer.results.log_folder import job_name
from bulkinfer.results.shard import Shard
from bulkinfer.runtime.devices import AUTO, Choice
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.types import Record, Step

log = logging.getLogger("bulkinfer")

RETRY = "bulkinfer retry"  # the command
_ANOTHER_OUTPUT = "give another --output, or --overwrite to remove them"
# What a run without pictures leaves out, by its input.
WITHOUT = {"generated": "reading, decoding, resizing and writing", "synthetic": "reading, decoding, preparing and writing"}
# Packages that decide what a row holds, each as versions() names it; Python and pyarrow do not.
_DECIDING_PACKAGES = (
    "bulkinfer", "numpy", "Pillow", "simplejpeg", "pillow-heif", "onnxruntime", "onnxruntime-gpu", "onnxruntime-ep-openvino"
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What is asked for, and what `auto` became. `dataset` is None in a run without pictures; `counts` are by partition.

    `identity` is that of the network asked for, `model` the graph that runs, which may be a variant. `command` is
    that of the config, or RETRY, for status.json. `shard` is the part of the job that a launch runs; None: all of it.
    """

    config: LaunchConfig
    model: Model
    choice: Choice
    dataset: Dataset | None
    counts: dict[int, int]
    identity: dict[str, Any]
    command: str = "infer_launch"
    shard: Shard | None = None

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that decides what the rows hold."""
        return json_sha256(self.identity)

    @property
    def name(self) -> str:
        """See job_name."""
        return job_name(self.model.card.name, self.fingerprint)

    @property
    def num_records(self) -> int:
        """Those of the shard, if it is one."""
        return sum((self.shard.num_records(self.counts) if self.shard else self.counts).values())

    def ranges(self) -> dict[int, list[Step]]:
        """What the launch is to run, by partition: all of it, or the steps of its shard."""
        if self.shard is not None:
            return self.shard.ranges(self.counts)
        return {index: [Step(index, 0, count)] for index, count in self.counts.items()}

    @property
    def row_bytes(self) -> int:
        """Size of the saved outputs of one record."""
        shapes = self.model.sidecar.outputs
        values = sum(math.prod(map(int, shapes[name][1:])) for name in self.model.card.outputs if name in self.config.save)
        return values * (2 if self.config.save_precision == "fp16" else 4)


def count_records(dataset: Dataset | None, limit: int) -> dict[int, int]:
    """How many records of each partition belong to the job: the first `limit` of all; 0: all."""
    counts = {}
    left = limit or float("inf")
    for partition in dataset.partitions if dataset else ():
        counts[partition.index] = int(min(left, partition.manifest.num_records))
        left -= counts[partition.index]
    return counts


def first_records(dataset: Dataset | None, counts: Mapping[int, int], most: int) -> Iterator[Record]:
    """At most `most` records of each partition, in the order of the job; none in a run without pictures."""
    for partition in dataset.partitions if dataset else ():
        yield from partition.manifest.records(0, min(most, counts[partition.index]))


def identity_of(asked: Unsettled, dataset: Dataset | None) -> dict[str, Any]:
    """Every fact that decides what the rows hold, by the name under which a mismatch is reported."""
    config, model, card = asked.config, asked.model, asked.model.card
    facts = {name: getattr(config, name) for name in ("batch_size", "precision", "limit", "max_pixels",
                                                      "max_file_bytes", "allow_cpu_nodes", "decode")}  # fmt: skip
    if "topk" in config.save:
        facts["top_k"] = min(config.top_k, int(model.sidecar.outputs[card.classified][-1]))
    saves_outputs = bool(set(card.outputs) & set(config.save))
    first = asked.candidates.choices[0]
    by_alternative = asked.request.provider != AUTO and first.is_alternative
    return {
        **facts,
        "device": asked.request.provider,  # which of its devices decides nothing
        "model_name": card.name,
        "graph_sha256": model.sidecar.sha256,
        "weights_sha256": card.external_data_sha256,
        "recipe": card.recipe.facts(),
        "outputs": card.outputs,
        "labels_sha256": json_sha256(card.labels),
        "save_precision": config.save_precision if saves_outputs else "fp32",
        "save": sorted(set(config.save)),
        "manifest": dataset.content_hash if dataset else config.input,
        **({"backend": first.entry.backend_version} if by_alternative else {}),
        **({"skipped": dataset.skipped.sha256} if dataset and dataset.skipped else {}),
    }


def new_job_file(job: Job) -> JobFile:
    """The content of _job.json before any part is published."""
    dataset = job.dataset
    return JobFile(
        {
            "fingerprint": job.fingerprint,
            "identity": job.identity,
            "config": asdict(job.config),
            "resolved": resolved_of(job),
            "versions": versions(),
            "weights": asdict(job.model.card.weights),
            "source": dataset.source if dataset else job.config.input,
            **({"label_classes": list(dataset.label_classes.items())} if dataset and dataset.label_classes else {}),
            **({"skipped": asdict(dataset.skipped)} if dataset and dataset.skipped else {}),
            "num_records": job.num_records,
            "partitions": _describe_partitions(job),
            **({"shard": job.shard.as_json(job.counts)} if job.shard else {}),
            "complete": False,
            "parts": {},
        }
    )


def resolved_of(job: Job) -> dict[str, Any]:
    """What `auto` became, and the graph and weights that run, as _job.json records it."""
    return {
        "provider": job.choice.provider,
        "devices": job.choice.models,
        "precision": job.choice.precision,
        "precision_reason": job.choice.precision_reason,
        **({"backend": backend} if (backend := job.choice.entry.backend_version) else {}),
        "graph_sha256": job.model.sidecar.sha256,
        "weights_sha256": job.model.card.external_data_sha256,
    }


def _describe_partitions(job: Job) -> dict[str, Any]:
    """By partition number: a PartitionEntry, and the hash of the manifest."""
    ranges = job.ranges()
    return {
        str(partition.index): {
            "num_records": sum(map(len, ranges[partition.index])),
            "keys_sha256": partition.manifest.keys_sha256(ranges[partition.index]),
            "manifest_sha256": partition.manifest.content_hash,
        }
        for partition in (job.dataset.partitions if job.dataset else ())
    }


def joined_identity(now: dict[str, Any], begun: JobFile | None) -> dict[str, Any]:
    """The identity that a job has in the output where `begun` was found: that of `begun` if both are the same job, else `now`.

    They are also the same where `auto` was asked for there and what it became is asked for now. The parts there bear the
    fingerprint of the identity there, and new ones must too.
    """
    if begun is None:
        return now
    there, resolved = dict(begun.identity), begun.resolved
    if there.get("precision") == AUTO and resolved.get("graph_sha256") == now["graph_sha256"]:
        there |= {name: now[name] for name in ("graph_sha256", "weights_sha256")}  # of the variant that it led to
    for name, became in (("precision", "precision"), ("device", "provider")):
        if there.get(name) == AUTO and now[name] != AUTO:
            there[name] = resolved.get(became)
    # it goes on by the backend that it began with, where this host has that one too: as_begun looks
    there, asked = ({name: value for name, value in each.items() if name != "backend"} for each in (there, now))
    return begun.identity if canonical_json(there) == canonical_json(asked) else now


def resolved_there(begun: JobFile, output: Path, identity: dict[str, Any], config: LaunchConfig | None) -> dict[str, Any]:
    """What `auto` became when the job of `identity` began in `output`.

    Raises UsageError if `output` holds another job, or a provider that this version does not know.
    """
    check_same_job(output, begun, identity, config)
    if (provider := begun.resolved["provider"]) not in PROVIDERS:
        raise UsageError(
            f"{job_path(output)} was begun on provider {provider}, which is unknown here: install a newer bulkinfer"
        )
    return begun.resolved


def check_same_job(
    output: Path, begun: JobFile, identity: dict[str, Any], config: LaunchConfig | None, otherwise: str = _ANOTHER_OUTPUT
) -> None:
    """Raises UsageError that names each differing field if `begun`, found in `output`, is another job than `identity`.

    `config` is that of the job asked for, None for a set of shards. `otherwise` says what to do about it.
    """
    if begun.fingerprint == json_sha256(identity):
        return
    differing = differences(begun.identity, identity)
    is_asked = differing.keys() <= {"precision", "device"}
    advice = " ".join(f"--{name} {begun.identity[name]}" for name in differing) + " continues it" if is_asked else ""
    if differing.keys() == {"manifest"}:
        rest = "" if config is None else f"; to run only pictures without an ok row there: {leaving_out(config, output)}"
        raise UsageError(
            f"{output} holds the results of a job on other pictures ({begun.source}: {begun.num_records}): {otherwise}{rest}"
        )
    raise UsageError(
        f"{output} holds the results of another job; it differs in {'; '.join(differing.values())}: "
        f"{otherwise}{f'; {advice}' if advice else ''}"
    )


def warn_of_changes(job: Job, output: Path, begun: JobFile) -> None:
    """One warning if packages or devices differ from those with which `begun`, found in `output`, began."""
    changes = version_changes(begun.versions, versions())
    if (before := begun.resolved.get("devices", job.choice.models)) != job.choice.models:
        there = ", ".join(map(str, before)) if isinstance(before, list) else before
        changes.append(f"{there} (now {', '.join(job.choice.models)})")
    if changes:
        log.warning(f"warning: {output} was begun with {', '.join(changes)}: new rows may differ from those there")


def version_changes(found: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Packages that decide what a row holds and whose version changed, as "Pillow 12.0 (now 13.0)".

    `found` and `now` are what versions() gave. A package that was not installed at the beginning took no part, and is left out.
    """
    return [
        f"{name} {found[name]} (now {now.get(name, 'not installed')})"
        for name in _DECIDING_PACKAGES
        if name in found and found[name] != now.get(name)
    ]
