"""The int8 of a variant: calibrated with some pictures, and the best of several candidates by what the others say of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.variants import quantize
from bulkinfer.export.variants.activation_ranges import TensorRange, batches, collect
from bulkinfer.export.variants.evaluate import Chosen, Judge, Tried, feed
from bulkinfer.model.accuracy_gate import rank
from bulkinfer.model.card import ModelCard
from bulkinfer.runtime.devices import Request, find_candidates

log = logging.getLogger("bulkinfer")

_JUDGES = ("cpu", "openvino")  # providers that run int8; the first one judges every candidate, the others the best


def make_int8(model: onnx.ModelProto, card: ModelCard, calibrate_NHWC: NDArray[np.uint8], judge: Judge, work: Path) -> Chosen:
    """The graph in int8 that is to be published. Raises RunError where none passes; `work` is for files."""
    log.info(f"measuring the values inside {card.name}")
    feeds = (feed(card, part) for part in batches(calibrate_NHWC, card.fixed_batch))
    ranges = collect(model, quantize.tensors_to_watch(model), feeds, work)
    return _choose(model, ranges, judge)


def _choose(model: onnx.ModelProto, ranges: dict[str, TensorRange], judge: Judge) -> Chosen:
    """The best graph of the first step in which one passes. Raises RunError where none passes.

    Steps are tried in order because what stays in fp32 costs speed.
    """
    tried: Tried = {}
    best: tuple[tuple[float, ...], str] | None = None
    for step in quantize.candidates(model):
        passing = []
        for candidate in step:
            graph = quantize.quantized(model, ranges, candidate)
            figures, why = judge.figures(graph, _JUDGES[0], str(candidate))
            tried[str(candidate)] = {**asdict(figures), "objection": why}
            if not why:
                passing.append((rank(figures), candidate, graph, figures))
            elif best is None or rank(figures) < best[0]:
                best = rank(figures), f"{candidate} has {figures} ({why})"
        for place, candidate, graph, figures in sorted(passing, key=lambda item: item[0]):
            others = {provider: judge.figures(graph, provider, str(candidate)) for provider in _other_judges()}
            if not any(why for _, why in others.values()):
                judged = {_JUDGES[0]: asdict(figures), **{name: asdict(found) for name, (found, _) in others.items()}}
                log.info(f"int8: {candidate} is taken")
                return Chosen(graph, str(candidate), tried, judged)
            name, (found, why) = next((name, item) for name, item in others.items() if item[1])
            if best is None or place < best[0]:
                best = place, f"{candidate} on {name} has {found} ({why})"
    assert best is not None
    raise RunError(
        f"int8 changes what the network sees, so no variant was made: of {len(tried)} candidates the best, {best[1]}: "
        "stay with --precision fp32, or give more pictures, and such as are to come"
    )


def _other_judges() -> Iterator[str]:
    """Providers beside the first that can run the variant on this host."""
    for provider in _JUDGES[1:]:
        try:
            find_candidates(Request(provider, (), "int8"))
        except UsageError as error:
            log.info(f"int8: not judged on {provider}, which is not available here ({error})")
        else:
            yield provider
