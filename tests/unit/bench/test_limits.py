"""limits.py: measured for real in a process of its own; and the lines that the report makes of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.bench import limits
from bulkinfer.bench.limits import Limits, measure_limits
from bulkinfer.bench.report import Quartiles, Throughput, limit_lines
from bulkinfer.config import LaunchConfig
from bulkinfer.runtime.providers import SessionSpec

from tests.graphs import save
from tests.models import tiny_graph
from tests.pictures import jpeg

CONFIG = LaunchConfig(model_name="tiny")


def throughput(inference: float, decode_cpu_s: float) -> Throughput:
    def each(value: float) -> dict[str, Quartiles]:
        return {kind: Quartiles(value, value, value) for kind in ("decode", "inference", "end_to_end")}

    return Throughput(each(inference), each(decode_cpu_s), 2, True, 1.0, 1.0, {})


def test_every_figure_is_measured(tmp_path: Path) -> None:
    path = save(tiny_graph(4), tmp_path)
    (tmp_path / "a.jpg").write_bytes(jpeg())
    (tmp_path / "b.jpg").write_bytes(b"nothing")
    pictures = [os.fsencode(tmp_path / name) for name in ("a.jpg", "b.jpg", "absent.jpg")]
    found = measure_limits(SessionSpec(path, "cpu", "fp32", 1, 1), [min(os.sched_getaffinity(0))], pictures, CONFIG)
    assert isinstance(found, Limits)
    assert min(found.peak, found.copied, found.turbo_cpu_s) > 0


def test_a_session_that_does_not_open_costs_one_figure(tmp_path: Path) -> None:
    path = save(tiny_graph(4), tmp_path)
    found = measure_limits(SessionSpec(path, "cuda", "fp32", 1, 1), [min(os.sched_getaffinity(0))], [], CONFIG)
    assert isinstance(found, Limits)
    assert (found.peak, found.turbo_cpu_s) == (0, 0)
    assert found.copied > 0


def test_what_cannot_be_measured_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ask", lambda *words: f"{words[-1]}: no memory")
    assert (
        measure_limits(SessionSpec("m.onnx", "cpu", "fp32", 1, 1), [0], [], CONFIG) == "the limits of this machine: no memory"
    )


def test_the_lines_of_the_report() -> None:
    found = limit_lines(throughput(50.0, 0.004), Limits(8e9, 20e6, 1000e9, 10e9, 0.003), "bf16")
    heading, network, memory, decoding = found
    assert heading == "limits of this machine, each measured alone"
    assert network.startswith(
        "  network: 8.00 G operations a picture, 400 G/s: 40 % of products of matrices in bf16 by the same "
    )
    assert network.endswith(", 1000 G/s")
    assert memory.startswith(
        "  memory: copies 10.0 GB/s; the layers of a picture read and write 20.0 MB, at most 500 images/sec "
    )
    assert decoding.startswith("  decoding: libjpeg-turbo alone takes 3.00 CPU ms for a JPEG, 75 % of reading, decoding and ")
    assert limit_lines(throughput(50.0, 0.004), Limits(), "fp32") == []
