"""A graph of several inputs is cut to the outputs that need the pictures alone, such as the picture half of a CLIP network."""

from __future__ import annotations

import onnx

from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import.inputs import are_pictures, real_inputs, shown
from bulkinfer.export.onnx_import.operators import needed_names


def cut_to_pictures(model: onnx.ModelProto, output_name: str) -> dict[str, str]:
    """Remove the outputs that need other inputs than the pictures, with their nodes and inputs; returns why each was removed.

    Changes nothing if there is one input, or if no output needs a single one: find_input says what is wrong then. The pictures
    are the input of `output_name`, or else the only input that can hold some.
    Raises UsageError if `output_name` needs several inputs although other outputs need one.
    """
    graph = model.graph
    inputs = {value.name: value for value in real_inputs(model)}
    needs = {output.name: [*needed_names(graph, [output.name]).intersection(inputs)] for output in graph.output}
    pictures = [name for name, value in inputs.items() if are_pictures(value) and [name] in needs.values()]
    if len(inputs) < 2 or not pictures:
        return {}
    if len(needs.get(output_name, ())) > 1:
        listed = ", ".join(f"{name} {shown(inputs[name])}" for name in sorted(needs[output_name]))
        single = ", ".join(output for output, needed in needs.items() if needed in [[name] for name in pictures])
        raise UsageError(f"--output_name: {output_name} needs {len(needs[output_name])} inputs ({listed}), and only pictures "
                         f"can be fed; with pictures alone there are {single}")  # fmt: skip
    if output_name in needs:
        pictures = needs[output_name] or pictures
    if len(pictures) > 1:
        return {}
    kept = [output for output in graph.output if needs[output.name] == pictures]
    cut = {name: f"it needs the inputs {', '.join(sorted(needed))}" for name, needed in needs.items() if needed != pictures}
    names = needed_names(graph, (output.name for output in kept))
    nodes = [node for node in graph.node if names.intersection(node.output)]
    weights = [tensor for tensor in graph.initializer if tensor.name in names]
    filled = [value for value in graph.input if value.name not in inputs or value.name in pictures]
    del graph.node[:], graph.output[:], graph.input[:], graph.initializer[:]
    graph.initializer.extend(weights)
    graph.node.extend(nodes)
    graph.output.extend(kept)
    graph.input.extend(filled)
    return cut
