"""rows.py: scores and classes against a naive computation, rows in input order whatever the order of batches."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bulkinfer.model.card import ModelCard, Weights
from bulkinfer.model.recipe import Recipe
from bulkinfer.results.rows import StepRows, softmax, task_for, top_classes
from bulkinfer.types import Step
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.rows import batch_of, filled_rows, logits_of, record, task

ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)
LOGITS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 8), st.integers(1, 40)),
    elements=st.floats(-100, 100, width=32) | st.sampled_from([0.0, -0.0, 1.0]),
)


def naive_softmax(row: list[float]) -> list[float]:
    largest = max(row)
    exponentials = [math.exp(value - largest) for value in row]
    return [value / math.fsum(exponentials) for value in exponentials]


@given(LOGITS)
def test_softmax(logits: np.ndarray[Any, Any]) -> None:
    expected = [naive_softmax([float(v) for v in row]) for row in logits]
    np.testing.assert_allclose(softmax(logits), expected, rtol=1e-12, atol=1e-300)


@given(LOGITS, st.integers(1, 50))
def test_top_classes_ties_in_order_of_class_id(logits: np.ndarray[Any, Any], k: int) -> None:
    expected = [sorted(range(len(row)), key=lambda i: (-row[i], i))[:k] for row in logits.tolist()]
    found = top_classes(logits, k)
    assert found.tolist() == expected
    assert found.dtype == np.int32


TIED = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf]) | st.floats(width=16, allow_nan=False)


@settings(max_examples=400)
@given(st.data(), st.sampled_from([np.float16, np.float32, np.float64]), st.booleans())
def test_top_classes_are_those_of_a_full_stable_sort(data: st.DataObject, dtype: Any, with_nan: bool) -> None:
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 60)))
    logits = data.draw(arrays.arrays(dtype, shape, elements=TIED | st.just(math.nan) if with_nan else TIED))
    k = data.draw(st.integers(1, shape[1] + 2))
    before = logits.tobytes()
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :k].astype(np.int32)
    found = top_classes(logits, k)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    assert logits.tobytes() == before


def test_top_classes_do_not_sort_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a full sort costs eight times as much")

    logits = np.random.default_rng(0).normal(size=(6, 1000)).astype(np.float32)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    monkeypatch.setattr(np, "argsort", refuse)
    assert top_classes(logits, 5).tolist() == expected.tolist()


def test_top_classes_put_nan_last() -> None:
    row = np.array([[math.nan, -math.inf, 2.0, math.inf, math.nan]], np.float32)
    assert top_classes(row, 5).tolist() == [[3, 2, 1, 0, 4]]


@settings(max_examples=200)
@given(arrays.arrays(np.float32, st.integers(1, 70), elements=ANY_FLOAT), st.data())
def test_a_row_does_not_depend_on_its_place_or_its_neighbours(row: np.ndarray[Any, Any], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9))
    place = data.draw(st.integers(0, size - 1))
    batch = data.draw(arrays.arrays(np.float32, (size, len(row)), elements=ANY_FLOAT))
    batch[place] = row
    alone = np.ascontiguousarray(row[None])
    k = data.draw(st.integers(1, len(row)))
    assert softmax(batch)[place].tobytes() == softmax(alone)[0].tobytes()
    assert top_classes(batch, k)[place].tolist() == top_classes(alone, k)[0].tolist()


@given(st.integers(1, 30), st.integers(1, 6), st.randoms(use_true_random=False))
def test_batches_may_come_in_any_order(size: int, batch_size: int, random: Any) -> None:
    """Every column is in input order, and what could be published early is exactly the unbroken beginning."""
    step = Step(3, 100, 100 + size)
    rows = StepRows(step, task("topk", "logits", top_k=1), batch_size)
    offsets = list(range(0, size, batch_size))
    random.shuffle(offsets)
    done: set[int] = set()
    for offset in offsets:
        numbers = [100 + i for i in range(offset, min(offset + batch_size, size))]
        batch = batch_of([record(n) for n in numbers], offset=offset, size=batch_size)
        complete = rows.fill(batch, {"logits": logits_of(numbers, batch_size)})
        done |= set(range(offset, offset + len(numbers)))
        assert complete == (len(done) == size)
        assert rows.finished_prefix() == next((i for i in range(size) if i not in done), size)
    assert rows.class_ids_SK is not None
    assert rows.scores_SK is not None
    assert [r.number for r in rows.records if r] == list(range(100, 100 + size))
    assert rows.class_ids_SK[:, 0].tolist() == [n % 4 for n in range(100, 100 + size)]
    expected = [
        naive_softmax(row)[best] for row, best in zip(rows.saved["logits"].tolist(), rows.class_ids_SK[:, 0], strict=True)
    ]
    np.testing.assert_allclose(rows.scores_SK[:, 0], expected, rtol=1e-6)


def test_b50_non_finite_rows_are_flagged_and_only_those() -> None:
    rows = StepRows(Step(0, 0, 6), task("topk", "embedding"), 4)
    logits, embedding = logits_of([0, 1, 2, 3]), np.ones((4, 3), np.float32)
    logits[1, 2] = np.nan
    embedding[2, 0] = np.inf
    logits[3] = np.nan  # of a failed picture: its slot held zeros, its outputs say nothing
    failed = {3: ("decode", "truncated JPEG")}
    rows.fill(batch_of([record(n) for n in range(4)], errors=failed), {"logits": logits, "embedding": embedding})
    padded = logits_of([4, 5])
    padded[2:] = np.nan
    rows.fill(batch_of([record(4), record(5)], offset=4), {"logits": padded, "embedding": np.ones((4, 3), np.float32)})
    assert rows.non_finite == {1, 2}
    assert rows.class_ids_SK is not None
    assert rows.scores_SK is not None
    assert rows.class_ids_SK[1].tolist()[0] == 1
    assert np.isnan(rows.scores_SK[1]).all()
    assert np.isfinite(rows.scores_SK[[0, 2, 4, 5]]).all()
    assert rows.errors == {3: ("decode", "truncated JPEG")}


def test_half_precision_overflow_is_flagged() -> None:
    """x*x*x*x at 300 in half precision is infinite: seen as such, and the neighbours keep their values."""
    values = np.array([[1.0, 2.0], [300.0, 1.0], [3.0, 1.0]], np.float16)
    with np.errstate(over="ignore"):
        rows = StepRows(Step(0, 0, 3), task("logits", num_classes=2), 4)
        padded = np.concatenate([values**4, np.zeros((1, 2), np.float16)])
    rows.fill(batch_of([record(n) for n in range(3)]), {"logits": padded})
    assert rows.non_finite == {1}
    assert rows.saved["logits"].tolist() == [[1.0, 16.0], [math.inf, 1.0], [81.0, 1.0]]


def test_saved_outputs_in_half_precision() -> None:
    """Rounded to the nearest; what it cannot hold is infinite and flagged, and the scores are not touched."""
    rows = StepRows(Step(0, 0, 2), replace(task("topk", "logits", num_classes=3), precision="fp16"), 4)
    logits = np.array([[1.0, 2.0 + 2**-12, 3.0], [1.0, 2.0, 65520.0]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows.fill(batch_of([record(0), record(1)]), {"logits": np.concatenate([logits, logits])})
    assert rows.saved["logits"].dtype == np.float16
    assert rows.saved["logits"].tolist() == [[1.0, 2.0, 3.0], [1.0, 2.0, np.inf]]
    assert rows.non_finite == {1}
    assert rows.scores_SK is not None
    assert rows.scores_SK[1].tolist() == [1.0, 0.0]


def test_scores_that_the_graph_gives_are_kept_as_they_are() -> None:
    rows = filled_rows(Step(0, 0, 2), task(are_logits=False))
    assert rows.scores_SK is not None
    np.testing.assert_array_equal(rows.scores_SK, np.array([[1.0, -1.0], [1.01, -1.0]], np.float32))


def test_a_batch_without_a_good_picture_leaves_zeros() -> None:
    errors = dict.fromkeys(range(4), ("decode", "empty file"))
    rows = filled_rows(Step(0, 8, 14), task(), errors=errors)
    assert rows.class_ids_SK is not None
    assert not rows.class_ids_SK[:4].any()
    assert rows.class_ids_SK[4:, 0].tolist() == [0, 1]
    assert sorted(rows.errors) == [0, 1, 2, 3]
    assert rows.facts[0] is None
    assert rows.facts[4] is not None


@pytest.mark.parametrize(
    ("save", "outputs"),
    [
        (("topk",), ["logits"]),
        (("logits",), ["logits"]),
        (("embedding",), ["embedding"]),
        (("topk", "embedding"), ["logits", "embedding"]),
        (("none",), ["logits"]),
    ],
)
def test_task_asks_for_what_its_columns_need(save: tuple[str, ...], outputs: list[str]) -> None:
    found = task_for(card("logits"), save, 5, {"logits": [6, 1000], "embedding": [6, 2048]})
    assert found.outputs == outputs
    assert (found.num_classes, found.labels) == (1000, ("a", "b"))
    sizes = {"logits": (1000,), "embedding": (2048,)}
    assert found.columns == {name: size for name, size in sizes.items() if name in save}
    assert found.scores_are_logits


def test_task_keeps_no_more_classes_than_there_are() -> None:
    found = task_for(card("probabilities"), ("topk",), 5, {"logits": [6, 3]})
    assert (found.top_k, found.columns, found.scores_are_logits) == (3, {}, False)


def test_task_of_a_network_with_outputs_of_any_name_and_shape() -> None:
    shapes = {"map": [6, 2, 3], "output_1": [6, 10], "pooled": [6, 4]}
    network = replace(card("logits"), outputs={"map": "values", "output_1": "probabilities", "pooled": "embedding"})
    found = task_for(network, ("topk", "map"), 5, shapes)
    assert (found.classified, found.num_classes, found.scores_are_logits) == ("output_1", 10, False)
    assert (found.outputs, found.columns) == (["output_1", "map"], {"map": (2, 3)})
    rows = StepRows(Step(0, 0, 2), found, 2)
    maps = np.arange(12, dtype=np.float16).reshape(2, 2, 3)
    assert rows.fill(batch_of([record(0), record(1)], size=2), {"output_1": np.eye(2, 10, dtype=np.float32), "map": maps})
    assert rows.saved["map"].dtype == np.float32
    assert rows.saved["map"].tolist() == maps.reshape(2, 6).tolist()


def test_task_of_a_network_that_classifies_nothing() -> None:
    network = replace(card("logits"), outputs={"pooled": "values", "map": "values"})
    shapes = {"map": [6, 2, 3], "pooled": [6, 4]}
    assert task_for(network, ("map",), 5, shapes).outputs == ["map"]
    assert task_for(network, ("none",), 5, shapes).outputs == ["pooled"]


def card(meaning: str) -> ModelCard:
    recipe = Recipe(8, 8, "exact", 8, 1.0, "bilinear", (0.0,) * 3, (1.0,) * 3)  # type: ignore[arg-type]
    outputs = {"logits": meaning, "embedding": "embedding"}
    return ModelCard("tiny", recipe, Weights("random", ""), "", "", "uint8", outputs, ("a", "b"), 1, {}, "weights.bin", "")
