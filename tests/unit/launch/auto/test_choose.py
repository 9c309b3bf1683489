"""choose.py: which precision and which provider a job gets. Verdicts and rates are given; GPUs and processors are fakes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.launch.auto import device_trial as probe
from bulkinfer.launch.auto import precision
from bulkinfer.launch.auto.choose import find_network, settle
from bulkinfer.launch.auto.precision import Question, Verdict
from bulkinfer.launch.jobs.job import Job
from bulkinfer.launch.plan import plan_launch
from bulkinfer.model.card import read_card, write_card
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.types import Record

from tests.launches import config_of
from tests.models import tiny_graph, write_tiny_model
from tests.unit.launch.auto.test_precision import changed

pytestmark = pytest.mark.usefixtures("openvino")


class Judge:
    """Stands in for precision.judge: gives its verdict and keeps what it was asked."""

    def __init__(self) -> None:
        self.verdict: Verdict | None = Verdict(True, "fine")
        self.questions: list[Question] = []
        self.records: list[list[Record]] = []

    def __call__(
        self, question: Question, records: Iterable[Record], graph_sha256: str, kept: Path, *, only_kept: bool
    ) -> Verdict | None:
        self.questions.append(question)
        self.records.append(list(records))
        assert kept.name == "precision.json"
        return None if only_kept else self.verdict


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    judge = Judge()
    monkeypatch.setattr(precision, "judge", judge)
    return judge


def native(monkeypatch: pytest.MonkeyPatch, provider: str, *answer: str) -> None:
    monkeypatch.setitem(PROVIDERS, provider, replace(PROVIDERS[provider], native=lambda numbers: answer))


def settled(tmp_path: Path, **flags: Any) -> Job:
    return plan_launch(config_of(tmp_path, **{"precision": "auto", **flags})).job


def told(job: Job) -> tuple[str, str]:
    return job.choice.precision, job.choice.precision_reason


def test_the_cheaper_one_where_it_passes(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    job = settled(tmp_path, device="openvino", limit=7)
    assert told(job) == ("bf16", "auto: fine")
    (question,) = judge.questions
    assert (question.exact.precision, question.cheaper.precision, question.cheaper.provider) == ("fp32", "bf16", "openvino")
    assert (question.classified, question.are_logits, question.golden) == (
        "logits", True, str(tmp_path / "models" / "tiny" / "golden.npz"),
    )  # fmt: skip
    assert [record.key for record in judge.records[0]][:2] == [b"000-black.png", b"001-red.png"]
    assert len(judge.records[0]) == 7


@pytest.mark.parametrize(
    ("verdict", "flags", "reason"),
    [
        (Verdict(False, "bf16 does not pass: so"), {}, "auto: bf16 does not pass: so"),
        (Verdict(True, "fine"), {"dry_run": True}, "auto: a launch would first judge bf16"),
    ],
)
def test_fp32_where_it_does_not(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Verdict, flags: dict[str, Any], reason: str
) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    judge.verdict = verdict
    assert told(settled(tmp_path, device="openvino", **flags)) == ("fp32", reason)


def test_what_is_not_there_is_not_judged(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    native(monkeypatch, "openvino", "fp32", "this processor is old")
    assert told(settled(tmp_path, device="openvino")) == ("fp32", "auto: this processor is old")
    assert told(settled(tmp_path, device="cpu")) == ("fp32", "auto: the provider has nothing cheaper than fp32")
    native(monkeypatch, "openvino", "bf16", "")
    assert told(settled(tmp_path, device="openvino", precision="bf16")) == ("bf16", "as asked")
    assert not judge.questions


def test_a_provider_that_computes_in_one_precision_only(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    npu = replace(PROVIDERS["openvino:npu"], find_devices=lambda: ["Some NPU"], native=lambda numbers: ("fp16", ""))
    monkeypatch.setitem(PROVIDERS, "openvino:npu", npu)
    assert told(settled(tmp_path, device="openvino:npu")) == ("fp16", "auto: openvino:npu computes in nothing else")
    assert not judge.questions


def test_a_graph_that_is_cheaper_itself_stays_as_it_is(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    config = config_of(tmp_path, precision="auto", device="openvino")
    card = tmp_path / "models" / "tiny" / "card.json"
    write_card(card, replace(read_card(card), precision="fp16"))
    assert told(plan_launch(config).job) == ("fp32", "auto: the graph itself computes in fp16")
    assert not judge.questions


def test_a_graph_of_its_own_where_the_provider_needs_one(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on CUDA: without the variant it is fp32, and the command that makes it is told."""
    cpu = replace(PROVIDERS["cpu"], precisions=("fp32", "fp16"), variants=("fp16",), native=lambda numbers: ("fp16", ""))
    monkeypatch.setitem(PROVIDERS, "cpu", cpu)
    job = settled(tmp_path)
    missing = tmp_path / "models" / "tiny" / "fp16" / "card.json"
    assert job.choice.precision == "fp32"
    assert job.choice.precision_reason.startswith(
        f"auto: fp16 needs a graph of its own: {missing} does not exist: run get_model"
    )
    network = job.model
    missing.parent.mkdir()
    missing.write_text("{")  # nor does a damaged one stop a launch that did not ask for it
    assert settled(tmp_path).choice.precision == "fp32"
    write_tiny_model(tmp_path / "models" / "tiny", "fp16", batch_sizes=(4,), graph=changed(tiny_graph(4), scale=2))
    made_of = read_card(tmp_path / "models" / "tiny" / "card.json")
    write_card(missing, replace(made_of, precision="fp16"))
    job = settled(tmp_path)
    assert told(job) == ("fp16", "auto: fine")
    assert (job.model.graph, job.identity["graph_sha256"]) == (missing.parent / "model_4.onnx", network.sidecar.sha256)
    (question,) = judge.questions
    assert (question.exact.graph, question.cheaper.graph) == (str(network.graph), str(job.model.graph))
    assert question.cheaper_sha256 == job.model.sidecar.sha256 != network.sidecar.sha256
    judge.verdict = Verdict(False, "fp16 does not pass: so")
    assert settled(tmp_path).model.sidecar.sha256 == network.sidecar.sha256


def test_generated_pictures_are_none(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    settled(tmp_path, device="openvino", generated=True)
    assert judge.records == [[]]


def test_providers_are_measured_in_the_precision_each_would_have(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    asked: list[tuple[str, str]] = []

    def measure(trials: list[probe.Trial], *_: Any, **__: Any) -> dict[str, float]:
        asked.extend((trial.session.provider, trial.session.precision) for trial in trials)
        return {"cpu": 10.0, "openvino": 35.0}

    monkeypatch.setattr(probe, "measure", measure)
    job = settled(tmp_path, device="auto")
    assert asked == [("cpu", "fp32"), ("openvino", "bf16")]
    assert (job.choice.provider, *told(job)) == ("openvino", "bf16", "auto: fine")
    assert find_network(job.config).candidates.choices[0].precision == "auto"


def test_what_the_other_provider_was_held_back_by_is_said(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    judge.verdict = Verdict(False, "bf16 does not pass: so")
    monkeypatch.setattr(probe, "measure", lambda *_, **__: {"cpu": 12.0, "openvino": 10.0})
    assert settled(tmp_path, device="auto").choice.provider == "cpu"
    line = "device: openvino was measured in fp32 (auto: bf16 does not pass: so)\n"
    assert capsys.readouterr().out.count(line) == 1
    monkeypatch.setattr(probe, "measure", lambda *_, **__: {"cpu": 10.0, "openvino": 12.0})
    assert settled(tmp_path, device="auto").choice.provider == "openvino"
    assert "was measured in" not in capsys.readouterr().out  # the line of the precision says it


def test_a_network_without_pictures_is_judged_by_its_golden_ones(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    native(monkeypatch, "openvino", "bf16", "")
    settled = settle(find_network(config_of(tmp_path, precision="auto", device="openvino")))
    assert (settled.choice.provider, settled.choice.precision) == ("openvino", "bf16")
    assert settled.model.graph == tmp_path / "models" / "tiny" / "model_4.onnx"
    assert judge.records == [[]]
