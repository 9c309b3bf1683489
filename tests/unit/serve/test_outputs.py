"""outputs.py: the columns of a row from the outputs of the graph, and the rows of pictures that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.model.card import ModelCard, read_card
from bulkinfer.serve.batcher import Answer
from bulkinfer.serve.outputs import Outputs
from bulkinfer.serve.refusals import RefusedError

from tests.models import LABELS, write_tiny_model

SHAPES = {"logits": (8,), "embedding": (3,)}
LOGITS = np.array([[0, 3, 1, 2, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 8]], np.float32)
ANSWER = Answer({"logits": LOGITS, "embedding": np.ones((2, 3), np.float32)}, {})


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    return read_card(write_tiny_model(tmp_path) / "card.json")


def values(outputs: Outputs, answer: Answer, *wanted: str) -> dict[str, list[object]]:
    return {each.name: list(each.values) for each in outputs.tensors(answer, 2, wanted)}


def test_the_columns_of_a_row(card: ModelCard) -> None:
    found = {each.name: each for each in Outputs(card, SHAPES, 2).tensors(ANSWER, 2, ())}
    assert list(found) == ["logits", "embedding", "class_ids", "scores", "class_names"]
    assert found["class_ids"].values.tolist() == [[1, 3], [0, 7]]  # type: ignore[union-attr]
    exponentials = np.exp(LOGITS.astype(np.float64))
    shares = exponentials / exponentials.sum(axis=1, keepdims=True)
    assert np.allclose(found["scores"].values, [[shares[0, 1], shares[0, 3]], [shares[1, 0], shares[1, 7]]])
    assert found["class_names"].values == [LABELS[number].encode() for number in (1, 3, 0, 7)]
    assert found["class_names"].shape == (2, 2)


def test_scores_of_probabilities_are_these(card: ModelCard) -> None:
    outputs = Outputs(replace(card, outputs={"logits": "probabilities"}), {"logits": (8,)}, 1)
    assert values(outputs, ANSWER, "scores") == {"scores": [[3], [9]]}


def test_without_names_of_classes_there_is_no_such_column(card: ModelCard) -> None:
    names = [each.name for each in Outputs(replace(card, labels=()), SHAPES, 5).facts()]
    assert names == ["logits", "embedding", "class_ids", "scores"]


def test_without_classes_there_are_the_outputs_of_the_graph(card: ModelCard) -> None:
    outputs = Outputs(replace(card, outputs={"embedding": "embedding"}, labels=()), {"embedding": (3,)}, 5)
    assert [each.name for each in outputs.facts()] == ["embedding"]


def test_an_output_of_the_graph_hides_a_column_of_its_name(card: ModelCard) -> None:
    outputs = Outputs(replace(card, outputs={"logits": "logits", "scores": "values"}), {"logits": (8,), "scores": (1,)}, 5)
    assert [each.name for each in outputs.facts()] == ["logits", "scores", "class_ids", "class_names"]


def test_unknown_outputs_are_refused_with_those_that_are_known(card: ModelCard) -> None:
    with pytest.raises(
        RefusedError, match="no output 'other'; known are logits, embedding, class_ids, scores, class_names, errors"
    ):
        Outputs(card, SHAPES, 5).check(["logits", "other"])


def test_a_failed_picture_fails_the_request_or_is_named(card: ModelCard) -> None:
    outputs = Outputs(card, SHAPES, 2)
    answer = Answer({"logits": LOGITS.copy(), "embedding": np.ones((2, 3), np.float32)}, {1: ("decode", "no picture")})
    with pytest.raises(RefusedError, match=r"^pictures\[1\]: decode: no picture; ask for the output 'errors'"):
        outputs.tensors(answer, 2, ())
    found = values(outputs, answer, "errors", "logits", "class_ids", "scores", "class_names")
    assert found["errors"] == [b"", b"decode: no picture"]
    assert np.isnan(found["logits"][1]).all()  # type: ignore[call-overload]
    assert np.isnan(found["scores"][1]).all()  # type: ignore[call-overload]
    assert list(found["class_ids"][1]) == [-1, -1]  # type: ignore[call-overload]
    assert found["class_names"] == [b"red", b"blue", b"", b""]
    assert list(found["class_ids"][0]) == [1, 3]  # type: ignore[call-overload]


def test_if_every_picture_failed_rows_have_their_shapes(card: ModelCard) -> None:
    answer = Answer({}, {0: ("read", "a"), 1: ("read", "b")})
    found = values(Outputs(card, SHAPES, 2), answer, "errors", "embedding", "class_ids")
    assert np.isnan(found["embedding"]).all()
    assert np.shape(found["embedding"]) == (2, 3)
    assert np.shape(found["class_ids"]) == (2, 2)
