"""The protocol between launcher and workers: run.json, commands on a worker's stdin, events on its report pipe.

Commands and events are one JSON object a line, with the class in `kind`. Only this module encodes and decodes them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bulkinfer.errors import advising
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.model.recipe import Recipe
from bulkinfer.results.rows import Task, task_for
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec
from bulkinfer.types import Fault, Step

if TYPE_CHECKING:  # a worker does not need these modules
    from bulkinfer.config import LaunchConfig
    from bulkinfer.host.cores import ThreadPlan
    from bulkinfer.model.lookup import Model
    from bulkinfer.runtime.devices import Choice

ZEROS_FIRST = "--zeros_first"  # a word of a worker's command, see worker/process.py


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """The path of a partition's manifest, the hash of its content, which is part of the job, and the sha256 of the file.

    `is_stored`: its pictures lie in stores.
    """

    path: str
    content_hash: str
    file_sha256: str
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class RunSpec:
    """run.json: all that a worker of one launch needs. A worker does not read these facts from a card or a manifest again.

    `input` is pictures, generated, synthetic or decode (pictures without network and rows, for bench). `devices[i]` is the
    number of worker i's device, in place of that in `session`; a single one is that of all workers. `num_workers` is the number
    of loader threads, `loader_processes` that of the processes that load for them (0: none). `reduce_to` is the short side in
    pixels that JPEGs may be decoded at, 0: they are decoded exactly. `warm_up_s` is the length of the warm-up with zeros, 0:
    one run, None: the first batches warm up. `output` is None in a run without pictures; `metadata` goes into every part.
    `locks` are those of the launcher, path -> token; a worker publishes nothing once one of them was lost. `network_address` is
    where the folder of the graph lies in a store, for hosts that lack it; empty: it does not.
    """

    input: str
    batch_size: int
    recipe: Recipe
    task: Task
    session: SessionSpec
    devices: tuple[int, ...]
    num_workers: int
    loader_processes: int
    max_pixels: int
    max_file_bytes: int
    reduce_to: int
    warm_up_s: float | None
    graph_sha256: str
    manifests: dict[int, ManifestRef]
    output: str | None
    log_dir: str
    metadata: dict[str, Any]
    locks: dict[str, str]
    network_address: str = ""

    @classmethod
    def from_launch(
        cls,
        config: LaunchConfig,
        model: Model,
        choice: Choice,
        threads: ThreadPlan,
        *,
        fingerprint: str,
        manifests: dict[int, ManifestRef],
        output: Path | None,
        log_dir: Path,
        locks: dict[str, str],
    ) -> RunSpec:
        """What the workers of a launch of `config` need: `model` on the devices of `choice`; paths become absolute."""
        card, sidecar = model.card, model.sidecar
        return cls(
            input=config.input,
            batch_size=config.batch_size,
            recipe=card.recipe,
            task=task_for(card, config.save, config.top_k, sidecar.outputs, config.save_precision),
            session=session_spec(config, model.graph, choice, threads),
            devices=threads.devices,
            num_workers=threads.num_workers,
            loader_processes=threads.loader_processes,
            max_pixels=config.max_pixels,
            max_file_bytes=config.max_file_bytes,
            reduce_to=card.recipe.reduce_to(config.decode),
            warm_up_s=_warm_up_s(config, choice.provider),
            graph_sha256=sidecar.sha256,
            manifests=manifests,
            output=None if output is None else str(output.resolve()),
            log_dir=str(log_dir.resolve()),
            metadata={
                "fingerprint": fingerprint,
                "model": card.name,
                "graph_sha256": sidecar.sha256,
                "weights": asdict(card.weights),
                "recipe": card.recipe.facts(),
                "decode": config.decode,
                "precision": {"asked": config.precision, "ran": choice.precision, "reason": choice.precision_reason},
            },
            locks=locks,
            network_address=model.address,
        )

    def write(self, path: Path) -> None:
        """Publish run.json."""
        task = {**asdict(self.task), "save": sorted(self.task.save)}
        write_json(path, {**asdict(self), "task": task})

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """The inverse of write."""
        with advising("start the job again, which writes it again"):
            value = read_json(path)
        task = value["task"]
        value["recipe"] = Recipe(**value["recipe"])
        columns = {name: tuple(shape) for name, shape in task["columns"].items()}
        value["task"] = Task(**{**task, "save": frozenset(task["save"]), "labels": tuple(task["labels"]), "columns": columns})
        value["session"] = SessionSpec(**value["session"])
        value["devices"] = tuple(value["devices"])
        value["manifests"] = {int(index): ManifestRef(**ref) for index, ref in value["manifests"].items()}
        return cls(**value)


def _warm_up_s(config: LaunchConfig, provider: str) -> float | None:
    """See RunSpec. Only runs without pictures need its rate, where the length of steps is open.

    On a device with memory of its own a run of zeros takes little time, and shows that all streams fit into it at once.
    """
    if config.input == "pictures":
        return 0.0 if PROVIDERS[provider].memory else None
    return 0.0 if config.batches_per_step else 1.0


def session_spec(config: LaunchConfig, graph: Path, choice: Choice, threads: ThreadPlan) -> SessionSpec:
    """What the first worker asks of the runtime; the others differ in the device."""
    return SessionSpec(
        graph=str(graph),
        provider=choice.provider,
        precision=choice.precision,
        streams=threads.streams,
        threads_per_stream=threads.threads_per_stream,
        allow_cpu_nodes=config.allow_cpu_nodes,
        device=threads.devices[0],
        backend=choice.backend,
    )


# -- commands, launcher to worker ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run a step. `fault` is given for a single record that ends every process: it gets an error row and is not read."""

    step: Step
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class End:
    """No more steps will come: finish those you have."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Begin no further batch, and publish what is finished."""


# -- events, worker to launcher ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Totals:
    """What a worker process has used so far, and its loader processes; `metrics` is Metrics.as_json()."""

    metrics: dict[str, Any]
    peak_memory_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is open, and the worker takes steps. `proof` is what session.prove() returned; the rate is in pictures per
    second, 0 if the first batches warm up. `streams` and `num_workers` are the numbers of its threads, 0: those of the launch.
    """

    proof: dict[str, Any]
    load_s: float
    warm_up_rate: float
    versions: dict[str, str]
    pid: int
    streams: int = 0
    num_workers: int = 0


@dataclass(frozen=True, slots=True)
class StepDone:
    """The first `count` records of a step are published (all of them, unless it was stopped); `warm_up` of them had their rows
    when the worker's warm-up ended.

    Seconds: since this worker's previous line, or the end of its warm-up if that came later; of them waiting for batches and
    inside the network (means over its streams). They mean nothing if `warm_up` is `count`.
    """

    step: Step
    count: int
    ok: int
    stages: dict[str, int]
    sha256: str
    total_s: float
    wait_s: float
    compute_s: float
    totals: Totals
    warm_up: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker cannot go on; `message` is a sentence for the user."""

    message: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Ended:
    """All steps are done; after a Stop, the finished batches are published."""

    totals: Totals
    decoder_warnings: dict[str, int] = field(default_factory=dict)


# -- events of the engine itself -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Died:
    """A worker ended too early; `how` is as in "ended by exit code 1". `by_another`: a new worker takes over."""

    how: str
    by_another: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """A dead worker had published this step, and died before it could report it."""

    step: Step


Command = RunStep | End | Stop
Event = Ready | StepDone | Refused | Ended | Died | Recovered
_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (RunStep, End, Stop, Ready, StepDone, Refused, Ended, Died, Recovered)
}
_NESTED: dict[str, Any] = {"step": Step, "totals": Totals, "fault": Fault}


def encode(message: Command | Event) -> str:
    """One line, without its end."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)})


def decode(line: str | bytes) -> Any:
    """The inverse of encode."""
    value = json.loads(line)
    kind = _KINDS[value.pop("kind")]
    assert set(value) == {entry.name for entry in fields(kind)}, (kind, value)
    return kind(**{name: _NESTED[name](**item) if name in _NESTED and item else item for name, item in value.items()})
