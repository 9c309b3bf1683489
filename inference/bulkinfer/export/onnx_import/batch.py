"""At which batch sizes a foreign graph runs, whether rows of a batch change each other, and which outputs it has."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.config import GetModelConfig
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.export.onnx_import import rewrite as graph_rewrite
from bulkinfer.export.onnx_import.graph import Foreign, open_model, precision, run_all
from bulkinfer.export.onnx_import.outputs import Observed, observe
from bulkinfer.model.graph_checks import PADDING_TOLERANCE, PARITY_TOLERANCES, golden_images

log = logging.getLogger("bulkinfer")

_BATCHES = (1, 3)  # at which a graph of free batch is run


def find_batch(foreign: Foreign, config: GetModelConfig) -> tuple[int, Observed]:
    """The only batch at which the graph can be used (0: any), and its outputs.

    Raises UsageError if that batch is not the one asked for.
    """
    batch = foreign.picture.batch
    _check_repeatable(foreign)
    try:
        observed = _observe_free(foreign)
        if not observed.rows or (batch and config.output_name in observed.left_out):
            name = config.output_name or next(iter(observed.left_out))
            raise RunError(f"output {name}: {observed.left_out[name]}")
    except BulkinferError as error:
        fixed, only = _observe_fixed(foreign, batch or 1)
        if fixed.rows and config.batch_size != only:
            raise UsageError(f"--onnx: {foreign.name} fixes or mixes its batch inside ({error}); "
                             f"it can only be adopted with --batch_size {only}") from error  # fmt: skip
        observed = _usable(fixed, foreign)
        log.info(f"batch: {only} only, fixed inside the graph ({error})")
        return only, observed
    log.info("batch: free" + (f" (the graph said {batch}; it runs at any)" if batch else ""))
    return 0, _usable(observed, foreign)


def _check_repeatable(foreign: Foreign) -> None:
    """Raises UsageError if the original graph gives other values for the same pictures in a second run."""
    images = np.repeat(foreign.feed(golden_images(foreign.recipe))[:1], foreign.picture.batch or 1, axis=0)
    first, second = run_all(foreign.session, images), run_all(foreign.session, images)
    for name, values in first.items():
        if (
            isinstance(values, np.ndarray)
            and values.dtype.kind in "fiub"
            and not _agree(values, second[name], _tolerance(foreign))
        ):
            raise UsageError(f"--onnx: {foreign.name} draws random numbers: {name} differs from run to run with one picture: "
                             "export the network for inference (in torch: after model.eval())")  # fmt: skip


def _tolerance(foreign: Foreign) -> float:
    return PARITY_TOLERANCES[precision(foreign)]


def _agree(values: NDArray[Any], others: NDArray[Any], tolerance: float) -> bool:
    """True if two results differ by rounding only. Values that are not finite count as equal; they are reported elsewhere."""
    if values.shape != others.shape:
        return False
    if not (np.isfinite(values).all() and np.isfinite(others).all()):
        return True
    first, second = values.astype(np.float64), others.astype(np.float64)
    largest = float(np.max(np.abs(first), initial=0))
    return float(np.max(np.abs(first - second), initial=0)) <= tolerance * largest


def _observe_fixed(foreign: Foreign, batch: int) -> tuple[Observed, int]:
    """The outputs of the original graph at `batch`, and the batch at which it can be used: 1 if its rows change each other."""
    feed = foreign.feed(golden_images(foreign.recipe))
    observed = observe({batch: run_all(foreign.session, np.repeat(feed[:1], batch, axis=0))})
    return observed, 1 if batch > 1 and _mixed(foreign.session, feed, batch, observed) else batch


def _mixed(session: Any, feed: NDArray[Any], batch: int, observed: Observed) -> str:
    """The first output whose rows change with the other rows of a batch; empty if none does."""
    images = np.resize(feed, (batch, *feed.shape[1:]))
    together = run_all(session, images)
    for number in range(min(batch, len(feed))):
        repeated = run_all(session, np.repeat(feed[number : number + 1], batch, axis=0))
        for name in observed.rows:
            if not _agree(together[name][number], repeated[name][number], PADDING_TOLERANCE):
                return name
    return ""


def _usable(observed: Observed, foreign: Foreign) -> Observed:
    """`observed`, after logging which outputs are left out. Raises UsageError if all are."""
    for name, why in observed.left_out.items():
        log.info(f"output {name} is left out: {why}")
    if not observed.rows:
        raise UsageError(f"--onnx: {foreign.name} has no output with one row per picture")
    return observed


def _observe_free(foreign: Foreign) -> Observed:
    """The outputs of the graph with a free batch. Raises RunError or UsageError if it does not run like that."""
    model = copy.deepcopy(foreign.model)
    graph_rewrite.set_batch(model, foreign.picture, foreign.recipe, 0)
    if foreign.picture.batch and (fixed := graph_rewrite.fixed_outputs(model)):
        raise RunError(f"the batch of output {fixed[0]} does not follow that of the input")
    session = open_model(model, foreign.name)
    feed = foreign.feed(golden_images(foreign.recipe))
    runs = {count: run_all(session, feed[:count]) for count in _BATCHES}
    observed = observe(runs)
    # A graph made for one batch size may run at others and mix their pictures. The checks of the finished graph see more, but
    # they could only refuse it; here it can still be adopted at its own batch.
    mixed = _mixed(session, feed, max(_BATCHES), observed)
    for number in range(max(_BATCHES)):
        alone = run_all(session, feed[number : number + 1])
        for name in observed.rows:
            if not _agree(runs[max(_BATCHES)][name][number], alone[name][0], _tolerance(foreign)):
                mixed = mixed or name
    if mixed:
        raise RunError(f"other rows of the batch change the {mixed} of a picture")
    return observed
