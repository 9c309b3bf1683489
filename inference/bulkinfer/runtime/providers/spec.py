"""What one execution provider is to the rest, and what a worker asks of it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a worker asks of the runtime. `device` is the number of the device among those that the provider counts."""

    graph: str
    provider: str
    precision: str
    streams: int
    threads_per_stream: int
    allow_cpu_nodes: bool = False
    device: int = 0


def _at_once(_spec: SessionSpec) -> AbstractContextManager[None]:
    """Workers open their sessions at the same time."""
    return nullcontext()


def _nothing_cheaper(_numbers: tuple[int, ...]) -> tuple[str, str]:
    """fp32."""
    return "fp32", "the provider has nothing cheaper than fp32"


@dataclass(frozen=True, slots=True)
class Provider:
    """One entry of PROVIDERS.

    `find_devices()` names the devices here, in the order of their numbers; it raises UsageError that says what is missing and
    which command brings it. `attach(options, spec)` adds the provider to onnxruntime SessionOptions and returns a description
    of the device. `variants` are those of its `precisions` for which it must be given another graph, the variant of the
    network that get_model makes; in the others it runs the network's own. `is_counted` devices are told apart by number and
    get one worker each; the others are the host's processors. `is_automatic` ones are what `--device auto` may take. `memory`
    is where sessions keep their input, as OrtValue names it; empty: in the host's. `pin(array, device)` locks an array's
    pages, so that they are copied to the device without a detour, and returns why it could not, or nothing. `opening(spec)`
    is held while a session is opened. `native(numbers)` is the cheapest precision that these devices compute in natively, and
    why it is no cheaper one; int8 is never taken unasked. `only_native` are those of its `precisions` that it refuses to
    emulate.
    """

    ep_name: str
    modules: tuple[str, ...]
    install: str
    precisions: tuple[str, ...]
    find_devices: Callable[[], list[str]]
    attach: Callable[[Any, SessionSpec], str]
    variants: tuple[str, ...] = ()
    is_counted: bool = False
    is_automatic: bool = True
    memory: str = ""
    pin: Callable[[np.ndarray[Any, Any], int], str] | None = None
    opening: Callable[[SessionSpec], AbstractContextManager[None]] = _at_once
    native: Callable[[tuple[int, ...]], tuple[str, str]] = _nothing_cheaper
    only_native: tuple[str, ...] = ()


def runtime() -> Any:
    """The module onnxruntime, imported with its telemetry off unless the environment already decides about that.

    From 1.32 on, its Linux builds would otherwise write a device id and a store of events below the home folder when imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def refuse_other_nodes(options: Any, spec: SessionSpec) -> None:
    """The session fails where the provider cannot run a node, unless --allow_cpu_nodes lets the cpu provider run it."""
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if spec.allow_cpu_nodes else "1")
