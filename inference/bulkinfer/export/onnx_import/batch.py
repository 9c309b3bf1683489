"""At which batch sizes a foreign graph runs, whether rows of a batch change each other, and which outputs it has.

Each output is judged for itself: by runs over pictures that differ much, and by what the operators say for certain.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.config import GetModelConfig
from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.export.onnx_import import rewrite as graph_rewrite
from bulkinfer.export.onnx_import.graph import Foreign, open_model, precision, run_all
from bulkinfer.export.onnx_import.operators import sized_by_content
from bulkinfer.export.onnx_import.outputs import Observed, observe
from bulkinfer.model.graph_checks import BATCH, PADDING_TOLERANCE, PARITY_TOLERANCES, ROUNDING, golden_images

log = logging.getLogger("bulkinfer")

_BATCHES = (1, 3)  # at which a graph of free batch is run
_RUNS = 3  # of one picture, to see random numbers
_MIXED = "other rows of the batch change the {} of a picture"
_GREYS = (0, 128, 255)  # pictures in which nothing is found, or something everywhere


@dataclass(frozen=True)
class _Judged:
    """The outputs of a graph at one batch size, or at any, as observed.

    `contested` are those among the ones left out that a fixed batch may be able to give, with the reason.
    """

    observed: Observed
    contested: dict[str, str] = field(default_factory=dict)


def find_batch(foreign: Foreign, config: GetModelConfig) -> tuple[int, Observed]:
    """The only batch at which the graph can be used (0: any), and its outputs.

    A fixed batch is taken only where it gives outputs that a free one does not give.
    Raises UsageError if that batch is not the one asked for, or if no output can be used.
    """
    batch = foreign.picture.batch
    _check_repeatable(foreign)
    try:
        free = _judge_free(foreign)
        reason = next(iter(free.contested.values()), "")
        if not free.observed.rows or (batch and config.output_name in free.observed.left_out):
            left_out = free.observed.left_out
            name = config.output_name if config.output_name in left_out else next(iter(left_out))
            reason = reason or f"output {name}: {left_out[name]}"
    except BulkinferError as error:
        free, reason = _Judged(Observed({}, {})), str(error)
    if reason:
        only, fixed = _judge_fixed(foreign)
        gained = fixed.rows.keys() - free.observed.rows.keys()
        if config.output_name in fixed.left_out and config.output_name not in free.observed.rows:
            raise UsageError(f"--output_name: {config.output_name} cannot be used: {fixed.left_out[config.output_name]}")
        if gained and config.batch_size != only:
            raise UsageError(f"--onnx: {foreign.name} fixes or mixes its batch inside ({reason}); "
                             f"it can only be adopted with --batch_size {only}")  # fmt: skip
        if gained or not free.observed.rows:
            observed = _usable(fixed if fixed.left_out or fixed.rows else free.observed, foreign, reason)
            log.info(f"batch: {only} only, fixed inside the graph ({reason})")
            return only, observed
    log.info("batch: free" + (f" (the graph said {batch}; it runs at any)" if batch else ""))
    return 0, _usable(free.observed, foreign, reason)


def _pictures(foreign: Foreign) -> NDArray[Any]:
    """The golden pictures, and plain ones from black to white, as the graph takes them."""
    golden = golden_images(foreign.recipe)
    plain = np.stack([np.full_like(golden[0], grey) for grey in _GREYS])
    return foreign.feed(np.concatenate([golden, plain]))


def _check_repeatable(foreign: Foreign) -> None:
    """Raises UsageError if the original graph gives other values for the same pictures in a further run."""
    images = np.repeat(foreign.feed(golden_images(foreign.recipe))[:1], foreign.picture.batch or 1, axis=0)
    first = run_all(foreign.session, images)
    for again in [run_all(foreign.session, images) for _ in range(_RUNS - 1)]:
        for name, values in first.items():
            if _are_numbers(values) and not _agree(values, again[name], PADDING_TOLERANCE):
                raise UsageError(f"--onnx: {foreign.name} draws random numbers: {name} differs from run to run with one "
                                 "picture: export the network for inference (in torch: after model.eval())")  # fmt: skip


def _are_numbers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "fiub"


def _tolerance(foreign: Foreign) -> float:
    return PARITY_TOLERANCES[precision(foreign)]


def _agree(values: NDArray[Any], others: NDArray[Any], tolerance: float, floor: float = 0.0) -> bool:
    """True if two results differ by rounding only, or by `floor` at most.

    Values that are not finite count as equal; they are reported elsewhere.
    """
    if values.shape != others.shape:
        return False
    if not (np.isfinite(values).all() and np.isfinite(others).all()):
        return True
    first, second = values.astype(np.float64), others.astype(np.float64)
    largest = float(np.max(np.abs(first), initial=0))
    return float(np.max(np.abs(first - second), initial=0)) <= max(tolerance * largest, floor)


def _judge_fixed(foreign: Foreign) -> tuple[int, Observed]:
    """The batch at which the original graph can be used, and its outputs there.

    That is its own batch; or 1, if no output has rows of its own there and the graph runs at 1.
    """
    batch, feed = foreign.picture.batch or 1, _pictures(foreign)
    observed, runs = _observe(foreign.session, feed, batch)
    if batch == 1:
        return 1, observed
    sized = sized_by_content(foreign.model)
    follows = graph_rewrite.first_dimensions(foreign.model) if sized else {}
    rest = _without(observed, {name: _sized(by) for name, by in sized.items() if follows.get(name) != batch})
    rest = _without(rest, {name: _MIXED.format(name) for name in _mixed(foreign.session, feed, batch, rest, runs)})
    if rest.rows or not observed.rows:
        return batch, rest
    try:
        model = copy.deepcopy(foreign.model)
        graph_rewrite.set_batch(model, foreign.picture, foreign.recipe, 1)
        return 1, _observe(open_model(model, foreign.name), feed, 1)[0]
    except BulkinferError:  # it does run at its own batch, where no output is of use
        return batch, rest


def _sized(operator: str) -> str:
    return f"its size depends on the picture ({operator})"


def _without(observed: Observed, reasons: Mapping[str, str]) -> Observed:
    """`observed` without the rows for which there is a reason."""
    rows = {name: row for name, row in observed.rows.items() if name not in reasons}
    return Observed(rows, {**observed.left_out, **{name: why for name, why in reasons.items() if name in observed.rows}})


def _observe(session: Any, feed: NDArray[Any], batch: int) -> tuple[Observed, list[dict[str, Any]]]:
    """The outputs at `batch`, seen from runs with copies of each picture, and these runs."""
    runs = [run_all(session, np.repeat(feed[number : number + 1], batch, axis=0)) for number in range(len(feed))]
    return observe([(batch, run) for run in runs]), runs


def _mixed(
    session: Any, feed: NDArray[Any], batch: int, observed: Observed, repeated: list[dict[str, Any]] | None = None
) -> list[str]:
    """The outputs whose rows change with the other rows of a batch; `repeated` are runs with copies of each picture."""
    count = min(batch, len(feed))
    if repeated is None:
        repeated = [run_all(session, np.repeat(feed[number : number + 1], batch, axis=0)) for number in range(count)]
    together = run_all(session, np.resize(feed, (batch, *feed.shape[1:])))
    return [
        name
        for name in observed.rows
        if len(together[name]) != batch
        or not all(_agree(together[name][i], repeated[i][name][i], PADDING_TOLERANCE) for i in range(count))
    ]


def _usable(observed: Observed, foreign: Foreign, reason: str) -> Observed:
    """`observed`, after logging which outputs are left out. Raises UsageError if all are."""
    observed = Observed(observed.rows, {**foreign.cut, **observed.left_out})
    if not observed.rows:
        why = "; ".join(f"{name}: {why}" for name, why in observed.left_out.items()) or reason
        raise UsageError(f"--onnx: {foreign.name} has no output with one row per picture ({why})")
    for name, why in observed.left_out.items():
        log.info(f"output {name} is left out: {why}")
    return observed


def _judge_free(foreign: Foreign) -> _Judged:
    """The outputs of the graph with a free batch. Raises RunError or UsageError if it does not run like that."""
    model = copy.deepcopy(foreign.model)
    graph_rewrite.set_batch(model, foreign.picture, foreign.recipe, 0)
    sized, follows = sized_by_content(model), graph_rewrite.first_dimensions(model)
    session, feed, most = open_model(model, foreign.name), _pictures(foreign), max(_BATCHES)
    _, alone = _observe(session, feed, 1)
    together = run_all(session, feed[:most])
    observed = observe([*((1, run) for run in alone), (most, together)])
    # Here an operator decides how many rows there are; as many rows as pictures may be a coincidence.
    observed = _without(observed, {name: _sized(by) for name, by in sized.items() if follows.get(name) != BATCH})
    contested = {}
    if foreign.picture.batch:
        fixed = [name for name, size in follows.items() if isinstance(size, int) and name not in sized]
        contested = {name: f"the batch of output {name} does not follow that of the input" for name in fixed}
    # A graph made for one batch size may run at others and mix their pictures. The checks of the finished graph see more, but
    # they could only refuse it; here it can still be adopted at its own batch.
    mixed = _mixed(session, feed, most, observed)
    for name in observed.rows:
        if not all(_agree(together[name][i], alone[i][name][0], _tolerance(foreign), ROUNDING) for i in range(most)):
            mixed.append(name)
    contested |= {name: _MIXED.format(name) for name in mixed if name not in contested}
    return _Judged(_without(observed, contested), contested)
