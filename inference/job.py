"""A job: one frozen config bound to a network and a data set, identified by its fingerprint; and _job.json, its authority."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.card import GraphSidecar, ModelCard, check_graph_files, graph_path
from inference.config import LaunchConfig
from inference.errors import RunError, UsageError
from inference.paths import canonical_json, file_sha256, plain_name, read_json, safe_name, write_json
from inference.providers import SessionSpec, choose

if TYPE_CHECKING:
    from inference.cores import ThreadPlan
    from inference.manifest import Dataset
    from inference.types import Step

JOB_FILE = "_job.json"


@dataclass(frozen=True)
class Model:
    """A network ready to run: its folder's card, and the graph of the batch size asked for, with its sidecar."""

    card: ModelCard
    sidecar: GraphSidecar
    graph: Path


@dataclass(frozen=True)
class Job:
    """What is asked for, and what `auto` became. `dataset` is None in a synthetic run; `counts` are records by partition."""

    config: LaunchConfig
    model: Model
    provider: str
    provider_reason: str
    dataset: Dataset | None
    counts: dict[int, int]
    identity: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that decides what the rows hold."""
        return hashlib.sha256(canonical_json(self.identity).encode()).hexdigest()

    @property
    def name(self) -> str:
        """<model>-<first 8 of the fingerprint>."""
        return f"{safe_name(self.model.card.name)}-{self.fingerprint[:8]}"

    @property
    def num_records(self) -> int:
        return sum(self.counts.values())

    def session_spec(self, streams: int, threads_per_stream: int) -> SessionSpec:
        """What each worker asks of the runtime."""
        config = self.config
        return SessionSpec(
            str(self.model.graph), self.provider, config.precision, streams, threads_per_stream, config.allow_cpu_nodes
        )


@dataclass(frozen=True)
class Launch:
    """One launch of a job: the plan for this host, where it logs and writes (None: nowhere), what is there and what is to do.

    `description` is the content of _job.json, brought up to date as parts are published.
    """

    job: Job
    plan: ThreadPlan
    log_dir: Path
    output: Path | None
    description: dict[str, Any]
    todo: list[Step]


def find_model(config: LaunchConfig) -> Model:
    """The network of `config`, its files checked. Raises UsageError naming the get_model command where it is missing."""
    folder = _model_folder(config)
    words = ["get_model", "--model_name", config.model_name, "--batch_size", str(config.batch_size)]
    command = shlex.join(words + (["--model_path", config.model_path] if config.model_path != LaunchConfig.model_path else []))
    graph = graph_path(folder, config.batch_size)
    for path in (folder / "card.json", graph, graph.with_suffix(".json")):
        if not path.exists():
            raise UsageError(f"{path} does not exist: run {command}")
    card, sidecar, resolved = check_graph_files(folder, config.batch_size)
    weights = resolved.parent / card.external_data
    if not weights.exists():
        raise UsageError(f"{weights}, the weights of {graph}, does not exist: run {command}")
    if (found := file_sha256(weights)) != card.external_data_sha256:
        raise RunError(f"{weights} is not what card.json records (sha256 {found[:12]}, recorded "
                       f"{card.external_data_sha256[:12]}): run {command}")  # fmt: skip
    for name in config.save:
        if name in ("logits", "embedding") and name not in card.outputs:
            raise UsageError(f"--save {name}: {config.model_name} has only {', '.join(card.outputs)}")
    return Model(card, sidecar, resolved)


def _model_folder(config: LaunchConfig) -> Path:
    """models/<name>/, also for a name that differs in case, `-`, `_` or the colon of timm:NAME from the only such folder."""
    folder = Path(config.model_path) / config.model_name
    if folder.is_dir() or not folder.parent.is_dir():
        return folder
    same = [entry for entry in folder.parent.iterdir() if plain_name(entry.name) == plain_name(config.model_name)]
    return same[0] if len(same) == 1 else folder


def make_job(config: LaunchConfig, dataset: Dataset | None) -> Job:
    """Bind `config` to its network, provider and data set."""
    model = find_model(config)
    provider, reason = choose(config.device, config.precision)
    counts = {}
    left = config.limit or float("inf")
    for partition in dataset.partitions if dataset else ():
        counts[partition.index] = int(min(left, partition.manifest.num_records))
        left -= counts[partition.index]
    return Job(config, model, provider, reason, dataset, counts, _identity(config, model, dataset))


def _identity(config: LaunchConfig, model: Model, dataset: Dataset | None) -> dict[str, Any]:
    """Every fact that decides what the rows hold, by the name under which a mismatch is reported."""
    card = model.card
    facts = {name: getattr(config, name) for name in ("batch_size", "device", "precision", "top_k", "limit", "max_pixels",
                                                      "max_file_bytes", "allow_cpu_nodes")}  # fmt: skip
    return {
        **facts,
        "model_name": card.name,
        "graph_sha256": model.sidecar.sha256,
        "weights_sha256": card.external_data_sha256,
        "recipe": asdict(card.recipe),
        "outputs": card.outputs,
        "labels_sha256": hashlib.sha256(canonical_json(card.labels).encode()).hexdigest(),
        "save": sorted(config.save),
        "decode": "exact",
        "manifest": dataset.content_hash if dataset else "synthetic",
    }


def describe_job(job: Job, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The content of _job.json before any part is published."""
    dataset = job.dataset
    return {
        "fingerprint": job.fingerprint,
        "identity": job.identity,
        "config": asdict(job.config),
        "resolved": {"provider": job.provider, **resolved},
        "weights": asdict(job.model.card.weights),
        "source": dataset.source if dataset else "synthetic",
        "num_records": job.num_records,
        "partitions": _describe_partitions(job),
        "complete": False,
        "parts": {},
    }


def _describe_partitions(job: Job) -> dict[str, Any]:
    """By partition: records to do, and the hash of their keys that the parts must add up to."""
    from inference.results import hash_keys

    return {
        str(partition.index): {
            "num_records": job.counts[partition.index],
            "keys_sha256": hash_keys([partition.manifest.table.slice(0, job.counts[partition.index])]),
            "manifest_sha256": partition.manifest.content_hash,
        }
        for partition in (job.dataset.partitions if job.dataset else ())
    }


def read_job(output: Path) -> dict[str, Any] | None:
    """_job.json of an output directory; None if there is none."""
    path = output / JOB_FILE
    return read_json(path) if path.exists() else None


def write_job(output: Path, description: dict[str, Any]) -> None:
    """Publish _job.json."""
    write_json(output / JOB_FILE, {name: value for name, value in description.items() if name != "format"})


def check_same_job(output: Path, found: dict[str, Any], job: Job) -> None:
    """Raises UsageError that names each differing field if the output directory belongs to another job."""
    if found["fingerprint"] == job.fingerprint:
        return
    there, now = _fields(found["identity"]), _fields(job.identity)
    differing = [
        f"{name} ({_short(there.get(name))} there, {_short(now.get(name))} now)"
        for name in sorted({*there, *now})
        if canonical_json(there.get(name)) != canonical_json(now.get(name))
    ]
    raise UsageError(
        f"{output} holds the results of another job; it differs in {'; '.join(differing)}: "
        "give another --output, or --overwrite to remove them"
    )


def _fields(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity by field; those of the recipe and of the outputs as recipe.mean and so on."""
    found: dict[str, Any] = {}
    for name, value in identity.items():
        found |= {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _short(value: Any) -> str:
    text = canonical_json(value)
    return text if len(text) <= 24 else text[:12].strip('"') + "…"


def resolve_data_dir(config: LaunchConfig) -> Path:
    """--data_dir; without it datasets/ if it holds partitions, else $DATA_DIR. Raises UsageError with the command to type."""
    if config.data_dir:
        found = Path(config.data_dir)
    elif (Path("datasets") / "dataset.json").exists():
        return Path("datasets")
    elif from_environment := os.environ.get("DATA_DIR"):
        found = Path(from_environment)
    else:
        raise UsageError("no pictures given: use --data_dir, set DATA_DIR, or run partition_dataset --data_dir PHOTOS first")
    if not found.is_dir():
        raise UsageError(f"{found} is no folder: give --data_dir a folder of pictures or of partitions")
    return found
