"""precision.py: two precisions of one network are judged by the first pictures, once. The cheaper one is another graph here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.launch.auto import precision
from bulkinfer.launch.auto.precision import KEPT_FILE, Question, Verdict, judge
from bulkinfer.model.graph_checks import Golden, golden_images, write_golden
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.types import Record
from onnx import helper, numpy_helper

from tests.graphs import save
from tests.launches import write_photos
from tests.models import COLOURS, LABELS, RECIPE, tiny_graph

SHA256 = "ab" * 32


def changed(graph: onnx.ModelProto, *, scale: float = 1.0, swap: bool = False) -> onnx.ModelProto:
    """The graph with other logits: all times `scale`, or of the neighbouring classes."""
    for tensor in graph.graph.initializer:
        if tensor.name in ("weight", "bias"):
            values = numpy_helper.to_array(tensor) * np.float32(scale)
            tensor.CopyFrom(numpy_helper.from_array(np.roll(values, int(swap), axis=-1), tensor.name))
    return graph


@pytest.fixture
def question(tmp_path: Path) -> Question:
    (tmp_path / "exact").mkdir()
    graph = save(tiny_graph(4), tmp_path / "exact")
    write_golden(tmp_path / "golden.npz", Golden(golden_images(RECIPE), {}))
    spec = SessionSpec(graph, "cpu", "fp32", 1, 1)
    return Question(
        exact=spec, cheaper=replace(spec, precision="bf16"), cheaper_sha256=SHA256, recipe=RECIPE, classified="logits",
        are_logits=True, outputs=["logits", "embedding"], golden=str(tmp_path / "golden.npz"),
        max_pixels=10**8, max_file_bytes=1 << 30, reduce_to=0,
        devices=["the processor"], cores=[0],
    )  # fmt: skip


def cheaper(question: Question, folder: Path, graph: onnx.ModelProto) -> Question:
    (folder / "cheaper").mkdir(exist_ok=True)
    return replace(question, cheaper=replace(question.cheaper, graph=save(graph, folder / "cheaper")))


def photos(folder: Path, count: int, *, labelled: bool = False) -> Iterator[Record]:
    """Pictures of the eight colours in turn."""
    for number, path in enumerate(sorted(write_photos(folder / "photos", count).iterdir())):
        yield Record(number, path.name.encode(), str(path).encode(), LABELS.index(path.stem[4:]) if labelled else None)


def ask(question: Question, records: Iterator[Record], folder: Path, **options: Any) -> Verdict | None:
    return judge(question, records, SHA256, folder / KEPT_FILE, **{"only_kept": False, **options})


def test_the_same_answers_pass(question: Question, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = "top-1 agrees on 100.0% of 40 clear pictures, mean change of probability 0.000; output error 0.000, on 40 pictures"
    assert ask(question, photos(tmp_path, 40), tmp_path) == Verdict(True, told)
    assert capfd.readouterr() == (
        "precision: auto judges bf16 on cpu by up to 64 pictures, once for this network\n",
        "",
    )


def test_other_answers_do_not(question: Question, tmp_path: Path) -> None:
    other = cheaper(question, tmp_path, changed(tiny_graph(4), swap=True))
    verdict = ask(other, photos(tmp_path, 40), tmp_path)
    assert verdict is not None
    assert not verdict.passes
    assert verdict.reason.startswith("bf16 does not pass: top-1 agrees on 0.0% of 40 clear pictures")
    assert verdict.reason.endswith("99% must agree")


def test_more_wrong_labels_do_not_pass_whatever_else(question: Question, tmp_path: Path) -> None:
    """Too few clear pictures for agreement, and a change that the error alone would let pass: labels decide."""
    graph = tiny_graph(4)
    (bias,) = (tensor for tensor in graph.graph.initializer if tensor.name == "bias")
    values = numpy_helper.to_array(bias).copy()
    values[LABELS.index("black")] += 1.2  # now black beats red by a little
    bias.CopyFrom(numpy_helper.from_array(values, "bias"))
    verdict = ask(cheaper(question, tmp_path, graph), photos(tmp_path, 16, labelled=True), tmp_path)
    assert verdict is not None
    assert not verdict.passes
    wrong = 2 * (len(COLOURS) - 5)  # red, lime and blue, two each, score 1 against 1.2; the other colours score 2 and more
    assert f"of 16 labelled pictures {wrong} more wrong" in verdict.reason
    assert verdict.reason.endswith("1 more wrong is allowed")


def test_the_first_that_can_be_read_judge(question: Question, tmp_path: Path) -> None:
    good = list(photos(tmp_path, 80))
    (tmp_path / "broken").write_bytes(b"no picture")
    broken = [replace(good[0], place=str(tmp_path / name).encode()) for name in ("broken", "missing")]
    verdict = ask(question, iter([*broken, *good]), tmp_path)
    assert verdict is not None
    assert verdict.reason.endswith("on 64 pictures")
    few = ask(question, iter([*broken, *good[:3]]), tmp_path / "photos")
    assert few is not None
    assert few.reason.startswith("agreement not measurable (3 of 3 pictures have a clear answer, 30 are needed)")


@pytest.mark.parametrize("records", [0, 2], ids=["no pictures", "none that can be read"])
def test_without_pictures_the_golden_ones_judge_by_the_error(question: Question, records: int, tmp_path: Path) -> None:
    """A fortieth more is under the 6 % that bf16 may differ by, a tenth is not."""
    none = [Record(number, b"x", b"/nowhere") for number in range(records)]
    for scale, passes in ((1.025, True), (1.1, False)):
        other = cheaper(question, tmp_path, changed(tiny_graph(4), scale=scale))
        verdict = ask(replace(other, cheaper_sha256=f"{scale}"), iter(none), tmp_path)
        assert verdict is not None
        assert (verdict.passes, verdict.reason.count("on the golden pictures")) == (passes, 1)
        assert verdict.reason.endswith("a launch with pictures that can be read judges it by those") is not passes
        assert "agreement not measurable" in verdict.reason


def test_a_network_without_classes_is_judged_by_all_its_outputs(question: Question, tmp_path: Path) -> None:
    silent = replace(question, classified="", are_logits=False)
    for scale, passes in ((1.025, True), (1.2, False)):
        other = cheaper(silent, tmp_path, changed(tiny_graph(4), scale=scale))
        verdict = ask(replace(other, cheaper_sha256=f"{scale}"), photos(tmp_path, 40), tmp_path)
        assert verdict is not None
        assert verdict.passes == passes


def test_a_float32_input_is_normalised(question: Question, tmp_path: Path) -> None:
    """Both sides see the same, so only the names of the classes tell: the labels are right in both."""
    (tmp_path / "float").mkdir()
    graph = save(tiny_graph(4, input="float32"), tmp_path / "float")
    both = replace(
        question, exact=replace(question.exact, graph=graph), cheaper=replace(question.cheaper, graph=question.exact.graph)
    )
    verdict = ask(both, photos(tmp_path, 40, labelled=True), tmp_path)
    assert verdict is not None
    assert verdict.passes
    assert "agrees on 100.0% of 40 clear pictures" in verdict.reason


def test_what_does_not_run_is_no_choice_and_not_kept(question: Question, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no graph")
    broken = replace(question, cheaper=replace(question.cheaper, graph=str(tmp_path / "m.onnx")))
    verdict = ask(broken, photos(tmp_path, 4), tmp_path)
    assert verdict is not None
    assert verdict.reason.startswith(f"bf16 does not run: --device cpu cannot run {tmp_path / 'm.onnx'}")
    assert (verdict.passes, (tmp_path / KEPT_FILE).exists()) == (False, False)


class Counting:
    """Stands in for the child process; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_measurable = True

    def __call__(self, _module: str, value: dict[str, Any], _subject: str, *, limit_s: float) -> dict[str, Any]:
        json.dumps(value)
        self.asked += 1
        return {"objection": "", "figures": f"judged {self.asked} times", "is_measurable": self.is_measurable,
                "pictures": min(64, len(value["pictures"]))}  # fmt: skip


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setattr(precision, "ask", counting)
    return counting


def records(count: int) -> Iterator[Record]:
    return (Record(number, b"x", b"/\xff/x") for number in range(count))


def test_a_verdict_holds_as_long_as_nothing_changes(counting: Counting, question: Question, tmp_path: Path) -> None:
    first = ask(question, records(100), tmp_path)
    assert ask(question, records(5), tmp_path) == ask(question, records(0), tmp_path) == first
    assert ask(question, records(5), tmp_path, only_kept=True) == first
    assert counting.asked == 1
    for other in (
        replace(question, cheaper_sha256="cd"),
        replace(question, devices=["another"]),
        replace(question, recipe=replace(RECIPE, crop_fraction=1.0)),
        replace(question, classified="embedding"),
        replace(question, outputs=["logits"]),
        replace(question, cheaper=replace(question.cheaper, precision="fp16")),
        replace(question, cheaper=replace(question.cheaper, provider="openvino")),
    ):
        before = counting.asked
        ask(other, records(100), tmp_path)
        assert counting.asked == before + 1
    judge(question, records(100), "other graph", tmp_path / KEPT_FILE, only_kept=False)
    assert counting.asked == before + 2


def test_one_that_measured_no_agreement_holds_for_no_more_pictures(
    counting: Counting, question: Question, tmp_path: Path
) -> None:
    counting.is_measurable = False
    for count, asked in ((0, 1), (0, 1), (10, 2), (5, 2), (0, 2), (500, 3), (900, 3)):
        ask(question, records(count), tmp_path)
        assert counting.asked == asked, count


def test_one_that_could_not_read_every_picture_holds_for_the_same_pictures(
    counting: Counting, question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unreadable picture among a few: judged once, and not at every launch."""
    counting.is_measurable = False
    monkeypatch.setattr(precision, "ask", lambda *words, **options: counting(*words, **options) | {"pictures": 19})
    pictures = list(photos(tmp_path, 20))
    for _ in range(3):
        ask(question, iter(pictures), tmp_path)
        assert counting.asked == 1
    os.utime(pictures[3].place, ns=(1, 1))  # repaired
    ask(question, iter(pictures), tmp_path)
    assert counting.asked == 2


def test_pictures_that_appear_later_judge_anew(question: Question, tmp_path: Path) -> None:
    """As of a share that was not there at first: the golden pictures judged, by the error alone."""
    missing = [Record(number, b"x", b"/nowhere") for number in range(40)]
    first = ask(question, iter(missing), tmp_path)
    second = ask(question, photos(tmp_path, 40), tmp_path)
    assert first is not None
    assert second is not None
    assert ("on the golden pictures" in first.reason, "on 40 pictures" in second.reason) == (True, True)


def test_values_that_are_not_finite_do_not_pass_in_any_output(question: Question, tmp_path: Path) -> None:
    """The classes stay, and a column that somebody may save overflows."""
    overflow = [
        helper.make_node("Identity", ["mean"], ["kept"]),
        helper.make_node("Div", ["mean", "none"], ["embedding"]),
    ]
    graph = tiny_graph(4, overflow)
    graph.graph.initializer.append(numpy_helper.from_array(np.float32(0), "none"))
    for node in graph.graph.node:
        if node.op_type == "MatMul":
            node.input[0] = "kept"
    verdict = ask(cheaper(question, tmp_path, graph), photos(tmp_path, 40), tmp_path)
    assert verdict is not None
    assert (verdict.passes, "all values must be finite" in verdict.reason) == (False, True)


def test_a_dry_run_judges_nothing(counting: Counting, question: Question, tmp_path: Path) -> None:
    assert ask(question, records(100), tmp_path, only_kept=True) is None
    assert (counting.asked, (tmp_path / KEPT_FILE).exists()) == (0, False)
