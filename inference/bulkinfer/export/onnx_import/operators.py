"""What the operators of a foreign graph say for certain: random numbers, and sizes that depend on what is in a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import numpy_helper

_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Sampling")
)
_DROPOUTS = {"Dropout": (1, 2), "BiasDropout": (3, 4), "BitmaskDropout": (1, 2)}  # places of the ratio and of training_mode
_SIZED = frozenset(("NonMaxSuppression", "NonZero", "Unique", "Compress"))  # the content of their input decides a size
_SHAPES = frozenset(("Shape", "Size"))  # what they give does not depend on the content

_Values = Mapping[str, Any]  # the constants that are known, by name
_Functions = Mapping[tuple[str, str], onnx.FunctionProto]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of a node, such as the branches of an If."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else []
        yield from attribute.graphs


def taken(node: onnx.NodeProto) -> Iterator[str]:
    """The names of all values that a node and its subgraphs read."""
    yield from node.input
    for inner in subgraphs(node):
        yield from (output.name for output in inner.output)
        for part in inner.node:
            yield from taken(part)


def needed_names(graph: onnx.GraphProto, outputs: Iterable[str]) -> set[str]:
    """The names of all values that these outputs are computed from, and their own."""
    makers = {name: node for node in graph.node for name in node.output if name}
    needed: set[str] = set()
    wanted = [*outputs]
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed.add(name)
            if name in makers:
                wanted.extend(part for part in (*taken(makers[name]), *makers[name].output) if part)
    return needed


def random_operator(model: onnx.ModelProto) -> str:
    """The first operator that gives other values in every run and that an output needs; empty if there is none.

    A Dropout counts unless its training_mode, or its ratio, is a constant zero. Subgraphs and functions are searched too.
    """
    needed = needed_names(model.graph, (output.name for output in model.graph.output))
    functions = {(function.domain, function.name): function for function in model.functions}
    nodes = [node for node in model.graph.node if needed.intersection(node.output)]
    return _random_in(nodes, _constants(model.graph), functions, set())


def _constants(graph: onnx.GraphProto) -> dict[str, Any]:
    """The single values among the initializers of a graph."""
    return {tensor.name: _single(tensor) for tensor in graph.initializer if tensor.ByteSize() < 1024}


def _single(tensor: onnx.TensorProto) -> Any:
    values = numpy_helper.to_array(tensor) if tensor.data_location != onnx.TensorProto.EXTERNAL else None
    return values.item() if values is not None and values.size == 1 else None


def _random_in(nodes: Iterable[onnx.NodeProto], known: _Values, functions: _Functions, seen: set[Any]) -> str:
    """`seen` are the functions that were searched, each with its constant inputs: none is searched twice."""
    values = dict(known)
    for node in nodes:
        if node.op_type == "Constant" and node.output:
            values[node.output[0]] = _constant_value(node)
        elif node.op_type == "Identity" and node.input and node.output:
            values[node.output[0]] = values.get(node.input[0])
        function = functions.get((node.domain, node.op_type))
        if function is not None:
            inputs = {name: values.get(given) for name, given in zip(function.input, node.input, strict=False)}
            key = (node.domain, node.op_type, *map(repr, inputs.items()))
            if key in seen:
                continue
            seen.add(key)
            found = _random_in(function.node, inputs, functions, seen)
        else:
            found = node.op_type if node.op_type in _RANDOM or _drops(node, values) else ""
        for inner in subgraphs(node):
            found = found or _random_in(inner.node, {**values, **_constants(inner)}, functions, seen)
        if found:
            return found
    return ""


def _constant_value(node: onnx.NodeProto) -> Any:
    for attribute in node.attribute:
        if attribute.name == "value":
            return _single(attribute.t)
        if attribute.name in ("value_int", "value_float"):
            return attribute.i if attribute.name == "value_int" else attribute.f
    return None


def _drops(node: onnx.NodeProto, values: _Values) -> bool:
    """True if a node sets random values to zero, as in training."""
    if node.op_type not in _DROPOUTS:
        return False
    ratio, training = (node.input[place] if len(node.input) > place else "" for place in _DROPOUTS[node.op_type])
    never = values.get(training) is not None and not values[training]
    return bool(training) and not never and not (values.get(ratio) is not None and values[ratio] == 0)


def sized_by_content(model: onnx.ModelProto) -> dict[str, str]:
    """The outputs that come from an operator whose result has a size that depends on the picture, with that operator."""
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in {*taken(node)}:
            users.setdefault(name, []).append(node)
    content = _reached((value.name for value in model.graph.input), users, _SHAPES)
    functions = {(function.domain, function.name): function for function in model.functions}
    sized: dict[str, str] = {}
    for node in model.graph.node:
        operator = _first_sized([node], functions, set()) if content.intersection(taken(node)) else ""
        for name in _reached((name for name in node.output if name), users, frozenset()) if operator else ():
            sized.setdefault(name, operator)
    return {output.name: sized[output.name] for output in model.graph.output if output.name in sized}


def _reached(names: Iterable[str], users: Mapping[str, list[onnx.NodeProto]], barrier: frozenset[str]) -> set[str]:
    """All values that are computed from these, but for what the operators of `barrier` give."""
    reached, wanted = set[str](), [*names]
    while wanted:
        name = wanted.pop()
        if name not in reached:
            reached.add(name)
            wanted.extend(made for node in users.get(name, ()) if node.op_type not in barrier for made in node.output if made)
    return reached


def _first_sized(nodes: Iterable[onnx.NodeProto], functions: _Functions, seen: set[tuple[str, str]]) -> str:
    """The first operator of _SIZED in nodes, their subgraphs and functions."""
    for node in nodes:
        key = (node.domain, node.op_type)
        if node.op_type in _SIZED:
            return node.op_type
        inner = [part for graph in subgraphs(node) for part in graph.node]
        if key in functions and key not in seen:
            seen.add(key)
            inner += functions[key].node
        if found := _first_sized(inner, functions, seen) if inner else "":
            return found
    return ""
