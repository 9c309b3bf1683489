"""The gate for a cheaper precision: compares its answers on real pictures with those of fp32.

With random weights all pictures are near-ties, and agreement on them is noise. Then the error of the output itself decides,
and the verdict says so.

Shape letters: N pictures, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bulkinfer.model.scores import softmax
from bulkinfer.types import Array

MARGIN = 0.05  # of probability by which the best class must lead; a smaller lead is a near-tie, where both answers are right
MIN_CLEAR = 30  # pictures with such a lead; fewer cannot show a rate of 99 %
MIN_AGREEMENT = 0.99
MAX_MORE_WRONG = 1  # of the labelled pictures: one may be a near-tie


@dataclass(frozen=True, slots=True)
class Allowance:
    """The largest allowed changes: of the mean top-1 probability, and of the output relative to its size."""

    mean_change: float
    output_error: float


ALLOWANCES = {"bf16": Allowance(0.03, 0.06), "fp16": Allowance(0.03, 0.06), "int8": Allowance(0.05, 0.2)}


@dataclass(frozen=True, slots=True)
class Figures:
    """The measured figures. `agreement` and `mean_change` are over the `clear` pictures, and 0 if there is none.

    `agreement` is the share of pictures with the same best class as in fp32, `mean_change` the mean change of the probability
    of that class. `output_error` is the root mean square of the difference over all pictures, relative to that of fp32 around
    each row's mean. `more_wrong` is how many more of the `labelled` pictures than in fp32 get a class that is not their label.
    `not_finite` pictures got NaN or infinities: they count as if all their values were 0, and make the error infinite.
    """

    pictures: int
    clear: int
    agreement: float
    mean_change: float
    output_error: float
    labelled: int = 0
    more_wrong: int = 0
    not_finite: int = 0

    @property
    def is_measurable(self) -> bool:
        """True if enough pictures have a clear answer to measure agreement."""
        return self.clear >= MIN_CLEAR

    def __str__(self) -> str:
        error = f"output error {self.output_error:.3f}"
        if self.not_finite:
            error += f", and {self.not_finite} of {self.pictures} pictures have values that are not finite"
        if self.labelled:
            more = f"{abs(self.more_wrong)} {'more' if self.more_wrong >= 0 else 'fewer'} wrong"
            error += f"; of {self.labelled} labelled pictures {more}"
        if not self.is_measurable:
            few = f"{self.clear} of {self.pictures} pictures have a clear answer, {MIN_CLEAR} are needed"
            return f"agreement not measurable ({few}); {error}"
        agreement = f"top-1 agrees on {self.agreement:.1%} of {self.clear} clear pictures"
        return f"{agreement}, mean change of probability {self.mean_change:.3f}; {error}"


def compare(expected_NC: Array, found_NC: Array, *, are_logits: bool, labels: Sequence[int | None] = ()) -> Figures:
    """Compare class values `found_NC` with those of fp32 for the same pictures, and with their labels where known."""
    assert expected_NC.shape == found_NC.shape, (expected_NC.shape, found_NC.shape)
    broken: Array = np.flatnonzero(~np.isfinite(found_NC).all(axis=1))
    found_NC = found_NC.copy()
    found_NC[broken] = 0
    expected, found = (_probabilities(values, are_logits) for values in (expected_NC, found_NC))
    best, clear = expected.argmax(axis=1), _clear(expected)
    agrees = found[clear].argmax(axis=1) == best[clear]
    moved = np.abs(found[clear, best[clear]] - expected[clear, best[clear]])
    known = [(number, label) for number, label in enumerate(labels) if label is not None]
    wrong, wrong_now = (sum(values[number].argmax() != label for number, label in known) for values in (expected, found))
    return Figures(
        pictures=len(expected),
        clear=len(clear),
        agreement=float(agrees.mean()) if len(clear) else 0.0,
        mean_change=float(moved.mean()) if len(clear) else 0.0,
        output_error=math.inf if len(broken) else _relative_error(expected_NC.astype(np.float64), found_NC.astype(np.float64)),
        labelled=len(known),
        more_wrong=int(wrong_now - wrong),
        not_finite=len(broken),
    )


def count_clear(values_NC: Array, *, are_logits: bool) -> int:
    """How many pictures have a clear answer, by the class values of fp32."""
    return len(_clear(_probabilities(values_NC, are_logits)))


def _clear(probabilities_NC: Array) -> Array:
    """The numbers of the pictures whose best class leads by more than MARGIN."""
    is_single = probabilities_NC.shape[1] == 1
    two = np.pad(probabilities_NC, ((0, 0), (1, 0))) if is_single else np.partition(probabilities_NC, -2, axis=1)[:, -2:]
    return np.flatnonzero(two[:, 1] - two[:, 0] > MARGIN)


def compare_values(expected_ND: Array, found_ND: Array) -> Figures:
    """Compare outputs that are no class values: only their error can be measured."""
    assert expected_ND.shape == found_ND.shape, (expected_ND.shape, found_ND.shape)
    return Figures(len(expected_ND), 0, 0.0, 0.0, _relative_error(expected_ND.astype(np.float64), found_ND.astype(np.float64)))


def _probabilities(values_NC: Array, are_logits: bool) -> Array:
    return softmax(values_NC) if are_logits else values_NC.astype(np.float64)


def _relative_error(expected_NC: Array, found_NC: Array) -> float:
    """The relative error: 0 if nothing differs, infinite if the difference is not finite or the fp32 values are constant.

    Each row's mean is subtracted first: adding the same number to all logits of a picture changes no probability.
    """
    expected, found = (values - values.mean(axis=1, keepdims=True) for values in (expected_NC, found_NC))
    difference, size = np.sqrt(np.mean((found - expected) ** 2)), np.sqrt(np.mean(expected**2))
    if difference == 0:
        return 0.0
    with np.errstate(divide="ignore"):
        error = float(difference / size)
    return error if np.isfinite(error) else float("inf")


def objection(figures: Figures, precision: str) -> str:
    """Why the figures do not pass at `precision` (a key of ALLOWANCES); empty if they do."""
    allowed = ALLOWANCES[precision]
    if figures.not_finite:
        return "all values must be finite"
    if figures.more_wrong > MAX_MORE_WRONG:
        return f"{MAX_MORE_WRONG} more wrong is allowed"
    if not figures.is_measurable:
        return "" if figures.output_error <= allowed.output_error else f"an output error of {allowed.output_error} is allowed"
    if not figures.agreement >= MIN_AGREEMENT:
        return f"{MIN_AGREEMENT:.0%} must agree"
    if not figures.mean_change <= allowed.mean_change:
        return f"a mean change of {allowed.mean_change} is allowed"
    return ""


def rank(figures: Figures) -> tuple[float, ...]:
    """A key that sorts the best first: by agreement, then by change if these are measurable, else by the error."""
    if figures.is_measurable:
        return (-figures.agreement, figures.mean_change)
    return (figures.output_error,)
