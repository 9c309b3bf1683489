"""Outputs: which have rows, which is classified, under which names, and what its values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import.outputs import Observed, choose_classified, meaning_of_scores, observe, plan_outputs


def observed(**shapes: Any) -> Observed:
    return Observed({name: (shape, np.dtype(np.float32)) for name, shape in shapes.items()}, {"loss": "it is a single number"})


def test_rows_are_seen_by_running_twice() -> None:
    runs = {
        count: {
            "good": np.zeros((count, 5), np.float32), "flat": np.zeros(count, np.int64), "scalar": np.zeros(()),
            "constant": np.zeros((1, 4)), "boxes": np.zeros((count, count, 4)), "maps": [{0: 0.5}] * count,
            "names": np.array(["a"] * count, object), "map": np.zeros((count, 2, 3, 3), np.float16),
        }
        for count in (1, 3)
    }  # fmt: skip
    found = observe([*runs.items()])
    assert {name: (shape, str(kind)) for name, (shape, kind) in found.rows.items()} == {
        "good": ((5,), "float32"), "flat": ((), "int64"), "map": ((2, 3, 3), "float16"),
    }  # fmt: skip
    assert found.left_out == {
        "scalar": "it is a single number", "constant": "it has 1 rows for a batch of 3",
        "boxes": "its size changes from run to run", "names": "it holds no numbers",
        "maps": "it holds no numbers (a ZipMap: export the classifier with options={'zipmap': False} to get its probabilities)",
    }  # fmt: skip


def test_the_classified_output() -> None:
    assert choose_classified("b", observed(a=(3,), b=(4,))) == ("b", "as asked")
    assert choose_classified("", observed(a=(3,))) == ("a", "the only output with one row per picture")
    assert choose_classified("", Observed(observed(a=(3,)).rows, {})) == ("a", "the only output")
    assert choose_classified("", observed(a=(3,), logits=(4,))) == ("logits", "by its name")
    with pytest.raises(UsageError, match=r"--output_name is needed: which of a, b holds the class values\?"):
        choose_classified("", observed(a=(3,), b=(4,)))
    with pytest.raises(UsageError, match="there is no output 'c'; there are a, b"):
        choose_classified("c", observed(a=(3,), b=(4,)))
    with pytest.raises(UsageError, match="loss cannot be used: it is a single number"):
        choose_classified("loss", observed(a=(3,)))


def test_c40_whole_numbers_are_labels_and_not_scores() -> None:
    label = {"label": ((), np.dtype(np.int64))}
    zipmap = {"probabilities": "it holds no numbers (a ZipMap: export the classifier with options={'zipmap': False} to get its "
                               "probabilities)"}  # fmt: skip
    told = r"output label holds whole numbers \(int64\), which are class numbers and not scores; the scores are in "
    told += r"probabilities, a ZipMap: export the classifier with options=\{'zipmap': False\}"
    for asked, prefix in (("", "--onnx"), ("label", "--output_name")):
        with pytest.raises(UsageError, match=f"^{prefix}: {told}"):
            choose_classified(asked, Observed(label, zipmap))
    exported = Observed({**label, "probabilities": ((3,), np.dtype(np.float32))}, {})
    assert choose_classified("", exported) == ("probabilities", "the only output, beside whole numbers in label")
    quantised = {"scores": ((10,), np.dtype(np.uint8))}
    assert choose_classified("", Observed(quantised, {})) == ("scores", "the only output")
    for shape, dtype in (((5,), np.int32), ((1,), np.uint8), ((4,), np.bool_), ((), np.int16)):
        with pytest.raises(UsageError, match="which are class numbers and not scores: name the output with the scores"):
            choose_classified("", Observed({"a": (shape, np.dtype(dtype))}, {}))


def test_names_that_differ_by_case_alone_are_told_apart() -> None:
    """Many readers of Parquet know columns without regard to case."""
    found = plan_outputs(observed(Scores=(3,), a=(3,), A=(3,), b=(3,)), "a")
    assert [output.name for output in found] == ["output_Scores", "a", "output_A", "b"]


def test_names_and_shapes() -> None:
    shapes = {"y": (5, 1, 1), "map": (2, 3, 3), "flat": (), "scores": (4,), "output_scores": (4,), "a/b:0": (2,), "-x": (1,),
              "topk": (2,)}  # fmt: skip
    outputs = plan_outputs(observed(**shapes), "y")
    assert [(output.source, output.name, output.shape) for output in outputs] == [
        ("y", "y", (5,)), ("map", "map", (2, 3, 3)), ("flat", "flat", (1,)), ("scores", "output_output_scores", (4,)),
        ("output_scores", "output_scores", (4,)), ("a/b:0", "a_b_0", (2,)), ("-x", "x", (1,)),
        ("topk", "output_topk", (2,)),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"output map has rows of \[2, 3, 3\]: class values are one row of numbers"):
        plan_outputs(observed(**shapes), "map")


NORMAL = np.float32([[0.2, 0.8], [0.5, 0.5]])
SIGMOID = np.float32([[0.2, 0.9], [0.5, 0.7]])
LOGITS = np.float32([[-2, 8], [0.5, 0.5]])
ONE = np.float32([[0.2], [0.9]])


@pytest.mark.parametrize(("flag", "values", "meaning", "why"), [
    ("auto", NORMAL, "probabilities", "go from 0.2 to 0.8, and each row sums to 1"),
    ("auto", LOGITS, "logits", "go from -2 to 8, so they are no probabilities"),
    ("probabilities", NORMAL, "probabilities", "as asked; each row sums to 1"),
    ("probabilities", SIGMOID, "probabilities", "as asked; rows do not sum to 1"),
    ("probabilities", ONE, "probabilities", "as asked; rows do not sum to 1"),
    ("logits", LOGITS, "logits", "as asked"),
    ("logits", SIGMOID, "logits", "as asked"),
])  # fmt: skip
def test_scores(flag: str, values: np.ndarray, meaning: str, why: str) -> None:
    found, reason = meaning_of_scores(flag, values)
    assert found == meaning
    assert reason.endswith(why)


@pytest.mark.parametrize(("flag", "values", "told"), [
    ("auto", SIGMOID, "--scores is needed: the values can be logits or probabilities, .* from 0.2 to 0.9"),
    ("auto", ONE, "--scores is needed"),
    ("auto", LOGITS[:, :1], "--scores is needed"),
    ("probabilities", LOGITS, "--scores probabilities: the values are no probabilities, .* give --scores logits"),
    ("logits", NORMAL, "--scores logits: the values look like probabilities, .* each row sums to 1"),
    ("logits", ONE, "the softmax of a single value is always 1"),
])  # fmt: skip
def test_scores_that_are_open_or_contradict(flag: str, values: np.ndarray, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        meaning_of_scores(flag, values)


def test_a_name_that_can_stay_is_not_given_to_another() -> None:
    rows = dict.fromkeys(["scores", "output_scores", "a/b", "a_b"], np.zeros((1, 5), np.float32))
    names = {output.source: output.name for output in plan_outputs(observe([(1, rows)]), "a/b")}
    assert names == {"scores": "output_output_scores", "output_scores": "output_scores", "a/b": "output_a_b", "a_b": "a_b"}
