"""How each contestant of tools/bench/peers.py is started, and what is read from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bulkinfer.model.card import ModelCard
from comparison import DEVICE_ONLY, OURS, RefusedError, Run, batches_per_step, between_steps, from_ready, read_benchmark_app
from ours import LIMIT_S, Launched, infer_launch
from peer_scripts.laps import tree_cpu_s
from peers_environment import ROOT

PEER_SCRIPTS = Path(__file__).with_name("peer_scripts")


@dataclass(frozen=True)
class Script:
    """A peer that is a script of ours: its file, and what is added to its job and to its environment."""

    file: str
    job: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


_FOR_ZOO = {"PYTHONPATH": str(ROOT / "inference")}  # timm_script.py imports bulkinfer.zoo
SCRIPTS = {
    "loop": Script("loop.py", {"spins": True}),
    "loop_no_spin": Script("loop.py", {"spins": False}),
    "timm": Script("timm_script.py", environment=_FOR_ZOO),
    "timm_no_spin": Script("timm_script.py", environment={**_FOR_ZOO, "OMP_WAIT_POLICY": "PASSIVE"}),
    "ray": Script("ray_data.py"),
}
PEERS = (*SCRIPTS, "openvino")
IN_TORCH, VARIANTS = ("timm", "timm_no_spin"), ("loop_no_spin", "timm_no_spin")
_OPENVINO_WORDS = {"fp32": "f32", "bf16": "bf16"}

Answers = dict[str, int]


@dataclass(frozen=True)
class Place:
    """What stays the same for all runs of one network.

    `network` is its source (timm, or the zoo) and its name there, `state` a file with its weights, both for torch.
    """

    card: ModelCard
    graph: Path
    network: tuple[str, str]
    state: Path
    model_path: str
    batch_size: int
    device: str
    precision: str
    defaults: bool
    cores: int
    python: Path  # of the peers' environment
    scratch: Path

    def precision_of(self, contestant: str) -> str:
        """The arithmetic that a contestant is told to use."""
        # onnxruntime's processor provider, which loop and ray use, knows no bf16
        has_bf16 = contestant in (OURS, DEVICE_ONLY, "openvino", *IN_TORCH)
        return self.precision if has_bf16 else "fp32"


def words_of_ours(place: Place, pictures: Path, count: int, *, is_synthetic: bool) -> list[object]:
    """The command line of ours, apart from the folder of its logs."""
    words: list[object] = ["--model_name", place.card.name, "--model_path", place.model_path]
    words += ["--synthetic"] if is_synthetic else ["--data_dir", pictures]
    if place.defaults:
        return words
    per_step = batches_per_step(count, place.batch_size)
    words += ["--batch_size", place.batch_size, "--device", place.device, "--precision", place.precision]
    words += ["--num_devices", 1, "--batches_per_step", per_step]
    return [*words, "--iterations", count // place.batch_size // per_step] if is_synthetic else words


def run_ours(
    place: Place, pictures: Path, count: int, number: int, *, is_synthetic: bool = False
) -> tuple[Run, Answers | None]:
    """One launch. With default options a launch may be one step: then time counts from the readiness of the worker."""
    name = DEVICE_ONLY if is_synthetic else OURS
    mark = "Ready" if place.defaults else "StepDone"
    folder = fresh(place.scratch / f"logs-{number}-{'synthetic' if is_synthetic else 'pictures'}")
    words = words_of_ours(place, pictures, count, is_synthetic=is_synthetic)
    launched = infer_launch(words, folder, mark=mark)
    if place.defaults:
        done, seconds = from_ready(launched.events(0, "Ready")[0]["time"], launched.steps(0))
    else:
        done, seconds = between_steps(launched.steps(0))
    ran = launched.summary["precision"]["ran"]
    facts = {"precision": ran, "command": ["infer_launch", *map(str, words)], **facts_of_ours(launched)}
    answers = None if is_synthetic else launched.answers()
    return Run(name, number, done, seconds, launched.cpu_s, None, facts), answers


def facts_of_ours(launched: Launched) -> dict[str, Any]:
    """What a launch did by itself."""
    summary = launched.summary
    return {name: summary[name] for name in ("device", "plan", "images_per_s", "startup_s", "ran", "versions")}


def fresh(folder: Path) -> Path:
    """`folder`, with a number behind its name if it exists."""
    names = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
    return next(name for name in names if not name.exists())


def run_script(place: Place, name: str, pictures: Path, number: int, precision: str = "") -> tuple[Run, Answers]:
    """One pass of a peer that is a script of ours in its own environment."""
    script = SCRIPTS[name]
    folder = fresh(place.scratch / f"{name}-{number}")
    folder.mkdir()
    precision = precision or place.precision_of(name)
    job = {
        "pictures": str(pictures),
        "graph": str(place.graph),
        "input": place.card.input,
        "output": place.card.classified,
        "recipe": asdict(place.card.recipe),
        "batch_size": place.batch_size,
        "cores": place.cores,
        "precision": precision,
        "defaults": place.defaults,
        "network": place.network,
        "state": str(place.state),
        "scratch": str(folder),
        "result": str(folder / "result.json"),
        **script.job,
    }
    (folder / "job.json").write_text(json.dumps(job))
    command = [str(place.python), str(PEER_SCRIPTS / script.file), str(folder / "job.json")]
    run_watched(command, folder, {**os.environ, **script.environment})
    found = json.loads((folder / "result.json").read_text())
    facts = {"precision": precision, **found["facts"]}
    return Run(name, number, found["pictures"], found["seconds"], found["cpu_s"], None, facts), found["answers"]


def run_openvino(place: Place, count: int, number: int) -> Run:
    """benchmark_app on the same graph, over as many pictures of random numbers. CPU time is that of its measuring step."""
    folder = fresh(place.scratch / f"openvino-{number}")
    folder.mkdir()
    words = ["-m", str(place.graph), "-niter", str(count // place.batch_size)]
    if not place.defaults:
        words += ["-d", "CPU", "-hint", "throughput", "-infer_precision", _OPENVINO_WORDS[place.precision]]
    seen: dict[str, float] = {}

    def on_line(pid: int, line: str) -> None:
        for step in ("[Step 10/", "[Step 11/"):
            if line.startswith(step):
                seen[step] = tree_cpu_s(pid)

    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines = run_watched([str(place.python.with_name("benchmark_app")), *words], folder, environment, on_line)
    iterations, seconds, precision = read_benchmark_app(lines)
    facts = {"precision": precision, "command": ["benchmark_app", *words]}
    cpu_s = seen["[Step 11/"] - seen["[Step 10/"]
    return Run("openvino", number, iterations * place.batch_size, seconds, cpu_s, None, facts)


def run_watched(
    command: list[str], folder: Path, environment: dict[str, str], on_line: Callable[[int, str], None] | None = None
) -> list[str]:
    """Run a command to its end and return what it printed, which is kept in the folder as well.

    `on_line` gets the process and each line at once. Raises RefusedError if it fails or takes too long.
    """
    lines = []
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            ["timeout", "--signal=KILL", str(LIMIT_S), *command], cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if on_line is not None:
                    on_line(process.pid, line)
                said.write(line)
                lines.append(line)
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        last = " | ".join(line.strip() for line in lines[-3:])
        raise RefusedError(f"{Path(command[-1] if len(command) < 4 else command[0]).name} ended with exit code {code}: {last}")
    return lines
