"""Open a network in this process, with the decisions that a launch takes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from bulkinfer.config import LaunchConfig
from bulkinfer.files.addresses import address_of
from bulkinfer.files.user_path import user_path
from bulkinfer.host.cores import ThreadPlan, core_budget
from bulkinfer.launch.auto.choose import Settled, settle
from bulkinfer.launch.graph_cache import with_cached_graph
from bulkinfer.launch.plan import open_network
from bulkinfer.model.card import CARD
from bulkinfer.model.names import named_folder
from bulkinfer.results.rows import task_for
from bulkinfer.runtime.devices import plan_workers
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.worker.loader import Limits
from bulkinfer.worker.predictor import Predictor
from bulkinfer.worker.protocol import session_spec


class Settings(TypedDict, total=False):
    """What open_model takes beside the network and where it runs: fields of LaunchConfig, with its defaults."""

    top_k: int
    save: tuple[str, ...]
    save_precision: str
    max_pixels: int
    max_file_bytes: int
    decode: str
    num_workers: int
    streams: int
    threads_per_stream: int
    allow_cpu_nodes: bool


def open_model(
    model: str | os.PathLike[str],
    *,
    batch_size: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    model_path: str | os.PathLike[str] = "models",
    **settings: Unpack[Settings],
) -> Predictor:
    """Open a network that get_model made, for predictions in this process.

    `model` is its folder or address, or its name in the folder or address `model_path`. `batch_size` is the number of pictures
    in each run of the network, any number of them can be predicted; by default 6, or the largest that get_model made if it
    made no graph of 6.
    `device`, `precision` and `settings` are the flags of infer_launch of the same names, with the same meanings: `auto` is
    settled as a launch settles it, which measures or judges once and keeps the answer in the folder of the network.
    `settings` are `top_k` (classes per row), `save` (columns: topk, and outputs by name), `save_precision` (fp32 or fp16),
    `max_pixels` (pixels) and `max_file_bytes` (bytes) beyond which a picture becomes an error row, `decode` (exact or fast),
    `num_workers` (loader threads), `streams`, `threads_per_stream` and `allow_cpu_nodes`.

    From then on, in the whole process, Pillow's own limit on pixels is off (`max_pixels` takes its place), and what Pillow
    warns of is counted, not shown.
    Raises UsageError, with the command to type, where the network, its graph, a package or the device is missing, and
    RunError if the network cannot run.
    """
    models = user_path(model_path, "model_path")
    folder, name = _place(model, address_of(models) or str(models))
    config = LaunchConfig(
        model_name=name,
        model_path=folder,
        batch_size=_made_batch_size(folder, name) if batch_size is None else batch_size,
        device=device,
        precision=precision,
        **settings,
    )
    found = decide(replace(config, num_devices=1))
    card = found.settled.model.card
    task = task_for(card, config.save, config.top_k, found.settled.model.sidecar.outputs, config.save_precision)
    return Predictor(card, found.session, task, found.limits, found.plan.num_workers)


@dataclass(frozen=True)
class Decided:
    """What a launch of a config would run in its workers: network, devices, threads, and the session on the first device."""

    settled: Settled
    plan: ThreadPlan
    session: SessionSpec
    limits: Limits


def decide(config: LaunchConfig) -> Decided:
    """Settle device and precision, and plan the threads. Raises what open_model raises, before anything is opened."""
    settled = settle(open_network(config))
    plan = plan_workers(config, settled.choice, core_budget())
    limits = Limits(config.max_pixels, config.max_file_bytes, settled.model.card.recipe.reduce_to(config.decode))
    session = with_cached_graph(session_spec(config, settled.model.graph, settled.choice, plan), settled.model, workers=1)
    return Decided(settled, plan, session, limits)


def _place(model: str | os.PathLike[str], model_path: str) -> tuple[str, str]:
    """The folder of networks, and the name of this one there."""
    if address := address_of(user_path(model, "model")).rstrip("/"):  # text may be a name, a path is a folder
        models, _, name = address.rpartition("/")
        return models, name
    path, text = Path(model), os.fspath(model)
    is_folder = isinstance(model, os.PathLike) or (os.sep in text and not text.startswith("timm:")) or (path / CARD).exists()
    return (str(path.absolute().parent), path.absolute().name) if is_folder else (model_path, text)


def _made_batch_size(folder: str, name: str) -> int:
    """The default batch size, or the largest for which there is a graph if there is none for the default.

    Of a network in a store it is the default: other graphs are made of the one of free batch.
    """
    default: int = LaunchConfig.batch_size
    if address_of(folder):
        return default
    network, _ = named_folder(folder, name)
    names = (re.fullmatch(r"model_(\d+)\.onnx", path.name) for path in network.glob("model_*.onnx"))
    made = {int(match[1]) for match in names if match}
    return default if default in made else max(made, default=default)
