"""The description of an execution provider, and of a session on it."""

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
    """A session as a worker opens it. `device` is the number of the device among those of the provider."""

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


def _only_fp32(_numbers: tuple[int, ...]) -> tuple[str, str]:
    """No precision is cheaper than fp32."""
    return "fp32", "the provider has nothing cheaper than fp32"


@dataclass(frozen=True, slots=True)
class Provider:
    """One entry of PROVIDERS.

    `ep_name` is onnxruntime's name for it, `modules` are the Python modules it needs, `extra` is the extra of bulkinfer that
    brings them.
    `find_devices()` returns the names of the devices on this host, in the order of their numbers. It raises UsageError that
    says what is missing and which command installs it, AbsentError if nothing of the provider is here.
    `attach(options, spec)` adds the provider to onnxruntime SessionOptions and returns a description of the device.
    `variants` are those of its `precisions` that need a graph of their own, the variant that get_model makes; in the others it
    runs the graph of the network. It refuses to emulate the precisions in `only_native`.
    Devices of a provider with `is_counted` have numbers and get one worker each; other providers run on the host's processors.
    `--device auto` chooses only among providers with `is_automatic`.
    `memory` is where sessions keep their input, in OrtValue's words; empty means in host memory. `pin(array, device)` locks the
    pages of an array, so that they are copied to the device directly, and returns why it could not, or ''.
    `opening(spec)` is held while a session is opened.
    `native(numbers)` returns the cheapest precision that these devices compute in natively, and why there is no cheaper one;
    it is never int8. `hidden_by` is an environment variable that hides devices of the host; empty: there is none.
    """

    ep_name: str
    modules: tuple[str, ...]
    extra: str
    precisions: tuple[str, ...]
    find_devices: Callable[[], list[str]]
    attach: Callable[[Any, SessionSpec], str]
    variants: tuple[str, ...] = ()
    is_counted: bool = False
    is_automatic: bool = True
    memory: str = ""
    pin: Callable[[np.ndarray[Any, Any], int], str] | None = None
    opening: Callable[[SessionSpec], AbstractContextManager[None]] = _at_once
    native: Callable[[tuple[int, ...]], tuple[str, str]] = _only_fp32
    only_native: tuple[str, ...] = ()
    hidden_by: str = ""


def runtime() -> Any:
    """The module onnxruntime, imported with telemetry off unless the environment sets it already.

    From 1.32 on, its Linux builds would otherwise write a device id and a store of events to the home folder on import.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def refuse_other_nodes(options: Any, spec: SessionSpec) -> None:
    """The session fails where the provider cannot run a node, unless --allow_cpu_nodes lets the cpu provider run it."""
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if spec.allow_cpu_nodes else "1")
