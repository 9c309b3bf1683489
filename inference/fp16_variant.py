"""The fp16 of a variant: converted, and judged as a device computes it, on a processor that has no fp16."""

from __future__ import annotations

from dataclasses import asdict

import onnx

from inference.errors import RunError
from inference.half import beyond_half, halved, rounded
from inference.judge import Chosen, Judge, Tried

_JUDGE = "cpu"  # no device need be here, and a machine that has none can make the variant for one that has


def make_fp16(model: onnx.ModelProto, judge: Judge) -> Chosen:
    """The graph in fp16 that is to be published. Raises RunError where it does not pass.

    The cpu provider does not round between the nodes of a graph in fp16, so a second graph that does is judged as well.
    """
    kept = beyond_half(model)
    name = "every node in fp16"
    if kept:
        name = f"{len(kept)} of {len(model.graph.node)} nodes in fp32"
        judge.say(f"fp16: {name}: they have constants of up to {max(kept.values()):.3g}, which fp16 cannot hold")
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
