"""The fp16 of a variant: converted, and judged as a device computes it, on a processor that has no fp16."""

from __future__ import annotations

import logging
from dataclasses import asdict

import onnx

from bulkinfer.errors import RunError
from bulkinfer.export.variants.convert_fp16 import beyond_half, halved, kept_in_fp32, rounded
from bulkinfer.export.variants.evaluate import Chosen, Judge, Tried

log = logging.getLogger("bulkinfer")

_JUDGE = "cpu"  # no device need be here, and a machine that has none can make the variant for one that has


def make_fp16(model: onnx.ModelProto, judge: Judge) -> Chosen:
    """The graph in fp16 that is to be published. Raises RunError where it does not pass.

    The cpu provider does not round between the nodes of a graph in fp16, so a second graph that does is judged as well.
    """
    kept, beyond = kept_in_fp32(model), beyond_half(model)
    name = f"{len(kept)} of {len(model.graph.node)} nodes in fp32" if kept else "every node in fp16"
    if beyond:
        largest = max(beyond.values())
        log.info(f"fp16: nodes that stay in fp32, as it cannot hold their constants of up to {largest:.3g}: {len(beyond)}")
    half = halved(model)
    tried: Tried = {}
    for what, graph in ((name, half), (f"{name}, values rounded", rounded(model, half))):
        figures, why = judge.figures(graph, _JUDGE, what)
        if why:
            raise RunError(
                f"fp16 changes what the network sees, so no variant was made: {what}: {figures} ({why}): "
                "stay with --precision fp32"
            )
        tried[what] = {**asdict(figures), "objection": why}
    return Chosen(half, name, tried, {_JUDGE: asdict(figures)})
