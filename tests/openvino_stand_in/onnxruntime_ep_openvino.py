"""Stands in for the package of the OpenVINO plugin when this folder is on PYTHONPATH; see tests/openvino.py.

BULKINFER_TEST_PLUGIN says what the plugin shows: `present` is a CPU device on any processor, `absent` is none, as the real one
on a processor that it does not serve. The device runs graphs by the runtime's own CPU kernels and reports them as its own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime

VARIABLE = "BULKINFER_TEST_PLUGIN"
EP_NAME = "OpenVINOExecutionProvider"
_LIBRARY = str(Path(__file__).with_name("no_library.so"))
_MARK = "tests.stand_in"  # a session config entry with the settings of the device
_NOT_SERVED = {"Det"}  # operators that the plugin leaves to the CPU provider
_STRICT = "session.disable_cpu_ep_fallback"
registered = set[str]()


def get_library_path() -> str:
    """What the runtime is asked to register."""
    return _LIBRARY


def _device() -> Any:
    """The CPU device; it computes in bf16 where the processor does, by the words of the system."""
    has_bf16 = any(word in Path("/proc/cpuinfo").read_text() for word in ("amx_bf16", "avx512_bf16"))
    return SimpleNamespace(
        ep_name=EP_NAME,
        ep_metadata={
            "ov_device": "CPU",
            "FULL_DEVICE_NAME": "a stand-in",
            "OPTIMIZATION_CAPABILITIES": "FP32 INT8" + (" BF16" if has_bf16 else ""),
            "version": "stand-in",
        },
    )


def _wrap_listing() -> None:
    plain_list, plain_register = onnxruntime.get_ep_devices, onnxruntime.register_execution_provider_library

    def get_ep_devices() -> list[Any]:
        mode, found = os.environ.get(VARIABLE), plain_list()
        if not mode:
            return found
        others = [device for device in found if not device.ep_name.startswith(EP_NAME)]
        return [*others, _device()] if mode == "present" and registered else others

    def register(name: str, path: str) -> None:
        if path != _LIBRARY:
            plain_register(name, path)
        elif name in registered:
            raise RuntimeError(f"library {name} is already registered")  # as the runtime does
        else:
            registered.add(name)

    onnxruntime.get_ep_devices, onnxruntime.register_execution_provider_library = get_ep_devices, register


def _wrap_options() -> None:
    plain = onnxruntime.SessionOptions.add_provider_for_devices

    def add_provider_for_devices(options: Any, devices: list[Any], settings: dict[str, str]) -> None:
        if not isinstance(devices[0], SimpleNamespace):
            plain(options, devices, settings)
            return
        chosen = json.loads(settings["load_config"])["CPU"]
        threads = int(chosen["INFERENCE_NUM_THREADS"]) // int(chosen["NUM_STREAMS"])
        is_strict = options.get_session_config_entry(_STRICT) == "1"
        options.add_session_config_entry(_MARK, json.dumps({"threads": threads, "is_strict": is_strict}))

    onnxruntime.SessionOptions.add_provider_for_devices = add_provider_for_devices


def _wrap_sessions() -> None:
    kind = onnxruntime.InferenceSession
    plain_init, plain_info = kind.__init__, kind.get_provider_graph_assignment_info

    def init(session: Any, graph: Any, sess_options: Any = None, *words: Any, **named: Any) -> None:
        try:
            settings = json.loads(sess_options.get_session_config_entry(_MARK))
        except (AttributeError, RuntimeError):  # no options, or none of ours
            plain_init(session, graph, sess_options, *words, **named)
            return
        options = onnxruntime.SessionOptions()  # others: the runtime refuses a session that has only the provider to be avoided
        options.log_severity_level, options.intra_op_num_threads = 3, settings["threads"]
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        plain_init(session, graph, options, *words, **named)
        session.is_of_stand_in, session._providers = True, [EP_NAME, "CPUExecutionProvider"]
        if settings["is_strict"] and any(part.ep_name != EP_NAME for part in session.get_provider_graph_assignment_info()):
            raise RuntimeError("nodes are assigned to the default CPU EP, but fallback to CPU EP has been explicitly disabled")

    def info(session: Any) -> list[Any]:
        found = plain_info(session)
        if not hasattr(session, "is_of_stand_in"):
            return found
        nodes = [node for part in found for node in part.get_nodes()]
        left = [node for node in nodes if node.op_type in _NOT_SERVED]
        served = [node for node in nodes if node.op_type not in _NOT_SERVED]
        parts = ((EP_NAME, served), ("CPUExecutionProvider", left))
        return [SimpleNamespace(ep_name=name, get_nodes=lambda part=part: part) for name, part in parts if part]

    kind.__init__, kind.get_provider_graph_assignment_info = init, info


if not hasattr(onnxruntime, "has_stand_in"):
    _wrap_listing()
    _wrap_options()
    _wrap_sessions()
    onnxruntime.has_stand_in = True
