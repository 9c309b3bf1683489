"""The graph of a variant: int8, the best of several candidates, or fp16, judged as a device computes it."""

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
from bulkinfer.export.variants.convert_fp16 import kept_in_fp32, rounded_like_fp16, to_fp16, too_large_for_fp16
from bulkinfer.export.variants.evaluate import Chosen, Judge, Tried, feed
from bulkinfer.model.accuracy_gate import rank
from bulkinfer.model.card import ModelCard
from bulkinfer.runtime.devices import Request, find_candidates

log = logging.getLogger("bulkinfer")

# Providers that run int8: the first one judges every candidate, the others only the best. It is also the one that judges fp16:
# the variant can be made on a machine without the device that will run it.
_JUDGES = ("cpu", "openvino")


def make_int8(model: onnx.ModelProto, card: ModelCard, calibrate_NHWC: NDArray[np.uint8], judge: Judge, work: Path) -> Chosen:
    """The graph in int8 to publish. `work` is a folder for temporary files. Raises RunError where no candidate passes."""
    log.info(f"measuring the values inside {card.name}")
    feeds = (feed(card, part) for part in batches(calibrate_NHWC, card.fixed_batch))
    ranges = collect(model, quantize.tensors_to_watch(model), feeds, work)
    return _choose(model, ranges, judge)


def _choose(model: onnx.ModelProto, ranges: dict[str, TensorRange], judge: Judge) -> Chosen:
    """The best graph of the first step in which one passes. Raises RunError where none passes.

    Steps are tried in order because every layer that stays in fp32 costs speed.
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
            others = {name: judge.figures(graph, name, str(candidate), backend) for name, backend in _other_judges()}
            if not any(why for _, why in others.values()):
                judged = {_JUDGES[0]: asdict(figures), **{name: asdict(found) for name, (found, _) in others.items()}}
                log.info(f"int8: {candidate} is chosen")
                return Chosen(graph, str(candidate), tried, judged)
            name, (found, why) = next((name, item) for name, item in others.items() if item[1])
            if best is None or place < best[0]:
                best = place, f"{candidate} on {name} has {found} ({why})"
    assert best is not None
    raise RunError(
        f"int8 changes the network's answers, so no variant was made: of {len(tried)} candidates the best, {best[1]}: "
        "stay with --precision fp32, or give more pictures, like those to come"
    )


def _other_judges() -> Iterator[tuple[str, str]]:
    """The providers beside the first that can run the variant on this host, and by which backend."""
    for provider in _JUDGES[1:]:
        try:
            (choice,) = find_candidates(Request(provider, (), "int8")).choices
        except UsageError as error:
            log.info(f"int8: not judged on {provider}, which is not available here ({error})")
        else:
            yield provider, choice.backend


def make_fp16(model: onnx.ModelProto, judge: Judge) -> Chosen:
    """The graph in fp16 to publish. Raises RunError where it does not pass.

    The cpu provider does not round between the nodes of a graph in fp16, so a second graph that rounds is judged too.
    """
    kept, too_large = kept_in_fp32(model), too_large_for_fp16(model)
    name = f"{len(kept)} of {len(model.graph.node)} nodes in fp32" if kept else "every node in fp16"
    if too_large:
        largest, count = max(too_large.values()), len(too_large)
        log.info(f"fp16: nodes that stay in fp32, because fp16 cannot hold their constants of up to {largest:.3g}: {count}")
    half = to_fp16(model)
    tried: Tried = {}
    for what, graph in ((name, half), (f"{name}, values rounded", rounded_like_fp16(model, half))):
        figures, why = judge.figures(graph, _JUDGES[0], what)
        if why:
            raise RunError(
                f"fp16 changes the network's answers, so no variant was made: {what}: {figures} ({why}): "
                "stay with --precision fp32"
            )
        tried[what] = {**asdict(figures), "objection": why}
    return Chosen(half, name, tried, {_JUDGES[0]: asdict(figures)})
