"""A torch network -> a graph of free batch, its weights as one block of bytes, and golden outputs. Writes no file.

Shape letters: N batch, H height, W width, C channels, D values per row.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from bulkinfer.errors import RunError, first_line
from bulkinfer.model.graph_checks import BATCH, Golden, golden_images, network_input
from bulkinfer.model.graph_file import Export, make_reproducible, move_weights_out
from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo import quiet

_CACHE = "TORCHINDUCTOR_CACHE_DIR"
OPSET = 18  # what every onnxruntime since 1.14 and the OpenVINO plugin read; the networks need nothing newer


class _GraphNetwork(torch.nn.Module):
    """The network with what the graph adds around it: normalisation before it, flat logits and the embedding after it.

    Takes uint8 N x H x W x 3 (RGB), or float32 N x 3 x H x W that is already normalised. Returns (logits,) or (logits,
    embedding), each N x D, or (embedding,) of a network without classes. The embedding of one with classes is the input of the
    classifying layer, averaged over the picture if it has places.
    """

    scale: torch.Tensor
    offset: torch.Tensor

    def __init__(self, network: torch.nn.Module, recipe: Recipe, input_kind: str, has_classes: bool) -> None:
        super().__init__()
        self.has_classes = has_classes
        self.network = network
        self.takes_pictures = input_kind == "uint8"
        self.is_bgr = recipe.channels == "BGR"
        self.register_buffer("scale", torch.tensor(recipe.scale, dtype=torch.float32).reshape(3, 1, 1))
        self.register_buffer("offset", torch.tensor(recipe.offset, dtype=torch.float32).reshape(3, 1, 1))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.takes_pictures:
            # contiguous: else torch traces the network for the strides of N x H x W x C, and its pooling becomes gathers
            images_NCHW = images.permute(0, 3, 1, 2).float().contiguous()
            if self.is_bgr:
                images_NCHW = images_NCHW.flip(1)
            images = images_NCHW * self.scale + self.offset
        return outputs_of(self.network, images, has_classes=self.has_classes)


def outputs_of(network: torch.nn.Module, inputs_NCHW: torch.Tensor, *, has_classes: bool = True) -> tuple[torch.Tensor, ...]:
    """(logits,) or (logits, embedding) of a network, (embedding,) of one without classes.

    Raises RunError for an output that is not one row per picture.
    """
    if not has_classes:
        found = network(inputs_NCHW)
        if not isinstance(found, torch.Tensor) or (embedding := _pooled(found)).dim() != 2:
            raise RunError(f"the network gives {_shape(found)} where one row of features per picture is needed")
        return (embedding,)
    classifier = _classifier(network)
    seen: list[torch.Tensor] = []
    hooks = [classifier.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))] if classifier else []
    try:
        logits = network(inputs_NCHW)
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, torch.Tensor) or (logits := _flat(logits)).dim() != 2:
        raise RunError(f"the network gives {_shape(logits)} where one row of class values per picture is needed")
    embeddings = [flat for value in seen[-1:] if (flat := _pooled(value)).dim() == 2]
    return (logits, *embeddings)


def _classifier(network: torch.nn.Module) -> torch.nn.Module | None:
    """The classifying layer: the one that a timm network names, else the last linear layer, else the last 1 x 1 convolution."""
    get_classifier: Any = getattr(network, "get_classifier", None)
    named = get_classifier() if get_classifier else None
    candidates = named if isinstance(named, tuple) else (named,)
    if isinstance(candidates[0], (torch.nn.Linear, torch.nn.Conv2d)):
        return candidates[0]
    modules = list(network.modules())
    linears = [module for module in modules if isinstance(module, torch.nn.Linear)]
    points = [module for module in modules if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (1, 1)]
    return (linears or points or [None])[-1]


def _flat(value_NC: torch.Tensor) -> torch.Tensor:
    """N x C x 1 x 1 becomes N x C; anything else stays as it is."""
    return value_NC.flatten(1) if value_NC.dim() == 4 and value_NC.shape[2:] == (1, 1) else value_NC


def _pooled(value_NC: torch.Tensor) -> torch.Tensor:
    """N x C x H x W becomes N x C, averaged over the picture; anything else stays as it is."""
    return value_NC.mean((2, 3)) if value_NC.dim() == 4 and value_NC.shape[2:] != (1, 1) else _flat(value_NC)


def _shape(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


@contextmanager
def _no_cache_left() -> Iterator[None]:
    """torch makes a folder for compiled code in the temporary folder, though an export compiles none: ours is removed."""
    if os.environ.get(_CACHE):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="bulkinfer-export-") as folder:
        os.environ[_CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(_CACHE, None)


@_no_cache_left()
def export_network(network: torch.nn.Module, recipe: Recipe, input_kind: str, *, has_classes: bool = True) -> Export:
    """Export a network in evaluation mode. Raises RunError if it cannot be exported with a free batch."""
    golden = _golden(network, recipe, has_classes)
    if input_kind == "uint8":
        example = torch.zeros(2, recipe.height, recipe.width, 3, dtype=torch.uint8)
    else:
        example = torch.zeros(2, 3, recipe.height, recipe.width)
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                _GraphNetwork(network, recipe, input_kind, has_classes).eval(),
                (example,),
                input_names=["images"],
                output_names=list(golden.outputs),
                dynamic_shapes=({0: torch.export.Dim(BATCH)},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise RunError(f"torch cannot export the network with a free batch: {_cause(error)}") from error
    assert program is not None
    model = program.model_proto
    weights, weights_file = move_weights_out(model)
    make_reproducible(model)
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    return Export(model.SerializeToString(deterministic=True), weights, weights_file, golden, num_parameters)


def _cause(error: BaseException) -> str:
    """The first line of the innermost error, because torch wraps the reason in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


def _golden(network: torch.nn.Module, recipe: Recipe, has_classes: bool) -> Golden:
    """The outputs of the source network for each golden picture alone, normalised outside the graph."""
    images_NHWC = golden_images(recipe)
    with torch.inference_mode():
        inputs = [torch.from_numpy(network_input(image[None], recipe)) for image in images_NHWC]
        try:
            rows = [outputs_of(network, one, has_classes=has_classes) for one in inputs]
        except (RuntimeError, AssertionError, ValueError) as error:  # torch and timm raise these for sizes that do not fit
            size = f"{recipe.width} x {recipe.height} pixels"
            raise RunError(f"the network does not run on pictures of {size}: {first_line(error)}") from error
    names = ("logits", "embedding")[: len(rows[0])] if has_classes else ("embedding",)
    outputs = {name: torch.cat([row[place] for row in rows]).numpy() for place, name in enumerate(names)}
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            raise RunError(f"with these weights the network's {name} are not finite numbers: the weights are damaged")
        if len(values) != len(images_NHWC):
            raise RunError(f"the network gives {len(values)} rows of {name} for {len(images_NHWC)} pictures")
    return Golden(images_NHWC, outputs)
