"""The description of an execution provider, and of a session on it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bulkinfer.host.versions import versions


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session as a worker opens it. `device` is the number of the device among those of the provider.

    `backend` is that of the entry that opens it (see Provider); empty for the first one of the provider. `cached_graph` is the
    optimised graph that is opened in place of `graph`, if its files still have the `cached_stamp` (see graph_cache.py); empty:
    there is none.
    """

    graph: str
    provider: str
    precision: str
    streams: int
    threads_per_stream: int
    allow_cpu_nodes: bool = False
    device: int = 0
    backend: str = ""
    cached_graph: str = ""
    cached_stamp: str = ""


class Opened(Protocol):
    """A graph that is open in a runtime: its one input, its outputs with their declared shapes, and the proof of what runs it.

    Sizes that the graph leaves open are not integers. `run` returns the outputs `names` for a full batch, in new arrays; any
    number of threads may call it at once. It raises what the runtime raises.
    """

    proof: dict[str, Any]
    input_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    output_shapes: dict[str, tuple[Any, ...]]

    def run(self, images: np.ndarray[Any, Any], names: list[str]) -> list[np.ndarray[Any, Any]]: ...


def _at_once(_spec: SessionSpec) -> AbstractContextManager[None]:
    """Workers open their sessions at the same time."""
    return nullcontext()


def _only_fp32(_numbers: tuple[int, ...]) -> tuple[str, str]:
    """No precision is cheaper than fp32."""
    return "fp32", "the provider has nothing cheaper than fp32"


@dataclass(frozen=True, slots=True)
class Provider:
    """One entry of PROVIDERS, or another backend of one: a second way to run the same devices.

    `ep_name` is its name in a proof, and onnxruntime's name for it; `modules` are the Python modules it needs, `extra` is the
    extra of bulkinfer that brings them. `backend` is the package that runs its devices; empty: onnxruntime itself. Where that
    is not here, `alternative` takes its place.
    `find_devices()` returns the names of the devices on this host, in the order of their numbers. It raises UsageError that
    says what is missing and which command installs it, AbsentError if nothing of the provider is here.
    `attach(options, spec)` adds the provider to onnxruntime SessionOptions and returns a description of the device.
    `open_graph(spec)` opens a graph without onnxruntime; None: onnxruntime opens it.
    `variants` are those of its `precisions` that need a graph of their own, the variant that get_model makes; in the others it
    runs the graph of the network. It refuses to emulate the precisions in `only_native`.
    Devices of a provider with `is_counted` have numbers and get one worker each; other providers run on the host's processors.
    `--device auto` chooses only among providers with `is_automatic`.
    `memory` is where sessions keep their input, in OrtValue's words; empty means in host memory. `pin(array, device)` locks the
    pages of an array, so that they are copied to the device directly, and returns why it could not, or ''.
    `opening(spec)` is held while a session is opened. The graph cache serves providers with `is_cached`.
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
    backend: str = ""
    open_graph: Callable[[SessionSpec], Opened] | None = None
    alternative: Provider | None = None
    is_cached: bool = False

    @property
    def backends(self) -> tuple[Provider, ...]:
        """The entries that run its devices, the preferred first."""
        return (self,) if self.alternative is None else (self, self.alternative)

    @property
    def backend_version(self) -> str:
        """`backend` with its version, as in "openvino 2026.4.1"; empty for onnxruntime itself."""
        return self.backend and f"{self.backend} {versions().get(self.backend, 'not installed')}"


def runtime() -> Any:
    """The module onnxruntime, imported with telemetry off unless the environment sets it already.

    From 1.32 on, its Linux builds would otherwise write a device id and a store of events to the home folder on import.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def refuse_other_nodes(options: Any, spec: SessionSpec) -> None:
    """The session fails where the provider cannot run a node, unless --allow_cpu_nodes lets the cpu provider run it."""
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if spec.allow_cpu_nodes else "1")
