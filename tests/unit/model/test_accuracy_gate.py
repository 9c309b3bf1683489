"""accuracy_gate.py: what counts as the same answer, and when nothing can be said."""

from __future__ import annotations

import numpy as np
import pytest
from bulkinfer.model.accuracy_gate import MIN_CLEAR, Figures, compare, objection, rank


def logits_of(classes: np.ndarray, height: float = 4.0, num_classes: int = 10) -> np.ndarray:
    """One high class in each row."""
    values = np.zeros((len(classes), num_classes), np.float32)
    values[np.arange(len(classes)), classes] = height
    return values


CLASSES = np.arange(200) % 10


def test_the_same_values_pass_with_nothing_changed() -> None:
    logits = logits_of(CLASSES)
    figures = compare(logits, logits, are_logits=True)
    assert figures == Figures(pictures=200, clear=200, agreement=1.0, mean_change=0.0, output_error=0.0)
    assert objection(figures, "int8") == objection(figures, "bf16") == ""


@pytest.mark.parametrize(("wrong", "passes"), [(2, True), (3, False)])
def test_ninety_nine_percent_must_agree(wrong: int, passes: bool) -> None:
    other = CLASSES.copy()
    other[:wrong] = (other[:wrong] + 1) % 10
    figures = compare(logits_of(CLASSES), logits_of(other), are_logits=True)
    assert figures.agreement == 1 - wrong / 200
    assert objection(figures, "int8") == ("" if passes else "99% must agree")


def test_near_ties_may_turn_over() -> None:
    """A lead of less than 0.05 is no answer; those pictures count in the output error only."""
    expected, found = logits_of(CLASSES), logits_of(CLASSES)
    expected[:100, :2], found[:100, :2] = (9.0, 8.99), (8.99, 9.0)
    figures = compare(expected, found, are_logits=True)
    assert (figures.clear, figures.agreement) == (100, 1.0)
    assert figures.output_error > 0


def test_the_mean_change_of_the_probability_is_bounded_by_precision() -> None:
    """Scores of 0.86 become 0.90: bf16 may not do that, int8 may; 0.93 is too much for both."""
    expected = logits_of(CLASSES)
    for height, why in ((4.36, "a mean change of 0.03 is allowed"), (4.75, "a mean change of 0.03 is allowed")):
        assert objection(compare(expected, logits_of(CLASSES, height), are_logits=True), "bf16") == why
    assert objection(compare(expected, logits_of(CLASSES, 4.36), are_logits=True), "int8") == ""
    assert "0.03 is allowed" in objection(compare(expected, logits_of(CLASSES, 4.36), are_logits=True), "fp16")
    assert "0.05 is allowed" in objection(compare(expected, logits_of(CLASSES, 4.75), are_logits=True), "int8")


def test_too_few_clear_pictures_leave_it_to_the_output_error() -> None:
    """As with random weights: best classes turn over everywhere, and that says nothing."""
    random = np.random.default_rng(0)
    expected = random.normal(0, 0.01, (200, 10)).astype(np.float32)
    expected[: MIN_CLEAR - 1, 0] = 9
    found = expected * np.float32(1.1)
    figures = compare(expected, found, are_logits=True)
    assert not figures.is_measurable
    assert "agreement not measurable (29 of 200 pictures have a clear answer, 30 are needed)" in str(figures)
    assert figures.output_error == pytest.approx(0.1, rel=1e-3)
    assert objection(figures, "int8") == ""
    assert objection(figures, "bf16") == "an output error of 0.06 is allowed"


def test_a_number_added_to_all_logits_of_a_picture_is_no_error() -> None:
    logits = logits_of(CLASSES)
    assert compare(logits, logits + 100, are_logits=True).output_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("rows", [200, 10], ids=["measurable", "not measurable"])
def test_what_is_not_finite_never_passes(rows: int) -> None:
    logits = logits_of(CLASSES[:rows])
    broken = np.full_like(logits, np.nan)
    figures = compare(logits, broken, are_logits=True)
    assert figures.output_error == float("inf")
    assert objection(figures, "int8")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_is_enough_also_where_the_answer_is_not_clear(value: float) -> None:
    logits = logits_of(CLASSES)
    logits[0] = 0
    broken = logits.copy()
    broken[0, 3] = value
    figures = compare(logits, broken, are_logits=True)
    assert (figures.agreement, figures.mean_change, figures.not_finite) == (1.0, 0.0, 1)
    assert objection(figures, "fp16") == "all values must be finite"
    assert str(figures).endswith("and 1 of 200 pictures have values that are not finite")
    assert np.isfinite(logits).all()


def test_probabilities_are_taken_as_they_are() -> None:
    expected = np.tile(np.array([[0.52, 0.48], [0.2, 0.8]], np.float32), (50, 1))
    figures = compare(expected, expected[:, ::-1], are_logits=False)
    assert (figures.clear, figures.agreement) == (50, 0.0)
    assert figures.mean_change == pytest.approx(0.6)


def test_the_best_comes_first() -> None:
    good = Figures(100, 50, 1.0, 0.01, 0.1)
    assert rank(good) < rank(Figures(100, 50, 1.0, 0.02, 0.05)) < rank(Figures(100, 50, 0.99, 0.0, 0.0))
    assert rank(Figures(100, 5, 0, 0, 0.1)) < rank(Figures(100, 5, 0, 0, 0.2))
