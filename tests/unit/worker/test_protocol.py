"""protocol.py: what one side says is what the other side hears, and a word that only one side knows is no silent loss."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.model.recipe import Recipe
from bulkinfer.results.rows import Task
from bulkinfer.runtime.devices import Choice
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.types import Fault, Step
from bulkinfer.worker.protocol import (
    Command,
    Died,
    End,
    Ended,
    Event,
    ManifestRef,
    Ready,
    Recovered,
    Refused,
    RunSpec,
    RunStep,
    StepDone,
    Stop,
    Totals,
    decode,
    encode,
    session_spec,
)

from tests.launches import plan_of
from tests.sealed import write_sealed

STEP = Step(3, 100, 142)
TOTALS = Totals({"seconds": {"infer": 1.5}, "runs": {"-32": 4}}, 1 << 30, 2.25)
MESSAGES = [
    RunStep(STEP),
    RunStep(Step(0, 7, 8), fault=Fault("decode", "every process died; the last: 'worker 0'\nended by \udce9")),
    End(),
    Stop(),
    Ready({"provider": "CPUExecutionProvider", "nodes": {"CPUExecutionProvider": 5}}, 0.5, 61.25, {"numpy": "2.1"}, 4711),
    StepDone(STEP, 40, 38, {"decode": 1, "infer": 1}, "ab" * 32, 10.0, 0.5, 9.25, TOTALS),
    Refused("--device openvino cannot run it", 2),
    Ended(TOTALS),
    Ended(TOTALS, {"Corrupt EXIF data": 3}),
    Died("signal 9 (SIGKILL)", by_another=True),
    Recovered(STEP),
]
SPEC = RunSpec(
    input="pictures",
    batch_size=6,
    recipe=Recipe(224, 224, "short_side", 256, 0.875, "bicubic", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), fill=(1, 2, 3)),
    task=Task(
        5,
        frozenset({"topk", "embedding"}),
        True,
        3,
        ("tench", "großer Hai", "\udce9"),
        "logits",
        {"embedding": (2048,)},
        "fp16",
    ),
    session=SessionSpec("/models/tiny/model_6.onnx", "openvino", "bf16", 4, 2, allow_cpu_nodes=True, device=1),
    devices=(1, 3),
    num_workers=4,
    loader_processes=2,
    max_pixels=10**8,
    max_file_bytes=1 << 30,
    reduce_to=282,
    warm_up_s=1.0,
    graph_sha256="cd" * 32,
    manifests={
        0: ManifestRef("/datasets/0/manifest.parquet", "ef" * 32, "23" * 32),
        11: ManifestRef("/é/manifest.parquet", "01" * 32, "45" * 32),
    },
    output="/results",
    log_dir="/logs/tiny-01234567",
    metadata={"fingerprint": "f" * 64, "weights": {"source": "random", "sha256": ""}},
    locks={"/results/_lock.json": "0123456789abcdef"},
)


def test_every_message_is_tried_here() -> None:
    assert {type(message) for message in MESSAGES} == {*get_args(Command), *get_args(Event)}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Any) -> None:
    line = encode(message)
    assert "\n" not in line
    assert line.isascii()
    for arriving in (line, line.encode() + b"\n"):
        heard = decode(arriving)
        assert (type(heard), heard) == (type(message), message)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_field_that_only_one_side_knows_is_a_bug_of_ours(message: Any) -> None:
    value = json.loads(encode(message))
    with pytest.raises(AssertionError, match="news"):
        decode(json.dumps({**value, "news": 1}))
    for field in fields(message):
        with pytest.raises(AssertionError, match=value["kind"]):
            decode(json.dumps({name: item for name, item in value.items() if name != field.name}))


def test_a_message_that_only_one_side_knows_is_a_bug_of_ours() -> None:
    with pytest.raises(KeyError, match="Pause"):
        decode('{"kind": "Pause"}')


@pytest.mark.parametrize("changes", [{}, {"input": "synthetic", "output": None, "manifests": {}, "metadata": {}}])
def test_run_json_is_read_as_it_was_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = replace(SPEC, **changes)
    spec.write(tmp_path / "run.json")
    found = RunSpec.read(tmp_path / "run.json")
    assert found == spec
    for name in ("recipe", "task", "session"):
        assert type(getattr(found, name)) is type(getattr(spec, name))
    assert hash(found.recipe) == hash(spec.recipe), "tuples stay tuples"
    assert found.task.labels == spec.task.labels
    assert found.task.columns == {"embedding": (2048,)}


def test_run_json_is_the_same_for_the_same_run(tmp_path: Path) -> None:
    SPEC.write(tmp_path / "one.json")
    replace(SPEC, task=replace(SPEC.task, save=frozenset(["embedding", "topk"]))).write(tmp_path / "other.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()


def test_run_json_with_a_field_that_nobody_knows(tmp_path: Path) -> None:
    SPEC.write(tmp_path / "run.json")
    value = json.loads((tmp_path / "run.json").read_text())
    write_sealed(tmp_path / "run.json", {**value, "news": 1})
    with pytest.raises(TypeError, match="news"):
        RunSpec.read(tmp_path / "run.json")
    (tmp_path / "run.json").write_text(json.dumps({**value, "format": 99}))
    with pytest.raises(UsageError, match="format 99"):
        RunSpec.read(tmp_path / "run.json")


def test_the_session_is_that_of_the_first_worker() -> None:
    config, threads = LaunchConfig(allow_cpu_nodes=True), replace(plan_of(), streams=2, threads_per_stream=3, devices=(4,))
    spec = session_spec(config, Path("model_6.onnx"), Choice("openvino", "", (0,), ("A",), "bf16"), threads)
    assert (spec.provider, spec.precision, spec.streams, spec.threads_per_stream) == ("openvino", "bf16", 2, 3)
    assert (spec.graph, spec.allow_cpu_nodes, spec.device) == ("model_6.onnx", True, 4)
