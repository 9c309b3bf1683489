"""A published graph -> one model to convert: weights inside, simplified by onnxruntime, every shape known."""

from __future__ import annotations

from pathlib import Path

import onnx

from bulkinfer.errors import RunError, first_line
from bulkinfer.files.atomic import naming
from bulkinfer.runtime.providers import runtime

_OPSET = 13  # the first whose QuantizeLinear takes scales per channel


def simplified(graph: Path, folder: Path) -> onnx.ModelProto:
    """The graph with its weights inside, simplified by onnxruntime (batch norms go into convolutions), shapes inferred.

    `folder` is for temporary files. Raises RunError if a step refuses the graph.
    """
    try:
        model = _by_onnxruntime(graph, folder)
    except OSError:  # a full disk, which is no fault of the graph
        raise
    except Exception as error:  # onnx and onnxruntime raise many classes, none of them documented
        raise RunError(f"{graph.name}: onnxruntime cannot simplify it: {first_line(error)}") from error
    used = {node.domain for node in model.graph.node}
    kept = [entry for entry in model.opset_import if entry.domain in used or not entry.domain]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    opset = next((entry.version for entry in kept if not entry.domain), _OPSET)
    try:
        if opset < _OPSET:
            model = onnx.version_converter.convert_version(model, _OPSET)
        model = onnx.shape_inference.infer_shapes(model)
    except Exception as error:  # onnx raises RuntimeError and classes of its own
        raise RunError(f"{graph.name}: onnx cannot bring it to opset {_OPSET}: {first_line(error)}") from error
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"  # nodes that stay in fp32 are listed by name
    return model


def _by_onnxruntime(graph: Path, folder: Path) -> onnx.ModelProto:
    """The graph with its weights inside, as onnxruntime saves it after its basic optimisations."""
    onnxruntime = runtime()
    inline, simple = folder / "inline.onnx", folder / "simple.onnx"
    with naming(inline):
        onnx.save(onnx.load(graph), inline)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(simple)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(inline), options, providers=["CPUExecutionProvider"])
    return onnx.load(simple)
