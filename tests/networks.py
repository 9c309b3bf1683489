"""Small torch networks, good and bad, and what it takes to publish them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from bulkinfer.export import model_folder
from bulkinfer.export.torch_export import export_network
from bulkinfer.model.card import ModelCard, Weights
from bulkinfer.model.graph_file import Export
from bulkinfer.model.recipe import Recipe

BGR = Recipe(
    height=8, width=8, resize="exact", resize_size=8, crop_fraction=1.0, interpolation="bilinear",
    mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), channels="BGR", value_range=(0.0, 255.0),
)  # fmt: skip
HALVES = Recipe(
    height=8, width=8, resize="exact", resize_size=8, crop_fraction=1.0, interpolation="bilinear",
    mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5),
)  # fmt: skip


class Mean(torch.nn.Module):
    """Mean of every channel; logits = 2 x mean, so embedding and logits cannot be mixed up."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 3, bias=False)
        self.head.weight.data = 2 * torch.eye(3)

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        return self.head(images_NCHW.mean((2, 3)))


class Convolutions(torch.nn.Module):
    """N x 5 x 1 x 1 out, no linear layer; its weights are large enough to go to the weights file."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.Conv2d(64, 5, 6)
        )

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        return self.layers(images_NCHW)


class LooksAtNeighbours(torch.nn.Module):
    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        means = images_NCHW.mean((2, 3))
        return means + 0.01 * means.amax(0, keepdim=True)


class ReshapesToOne(torch.nn.Module):
    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        return images_NCHW.mean((2, 3)).reshape(1, -1)


class NeedsOne(torch.nn.Module):
    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        return images_NCHW.reshape(1, 3, 64).mean(2)


class Pair(torch.nn.Module):
    def forward(self, images_NCHW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return images_NCHW.mean((2, 3)), images_NCHW


def card_of(export: Export, recipe: Recipe, input_kind: str = "uint8") -> ModelCard:
    return ModelCard(
        name="net", recipe=recipe, weights=Weights("net.pth", "0" * 64), licence="none", origin="tests", input=input_kind,
        outputs={name: name for name in export.golden.outputs}, labels=("a", "b", "c"), num_parameters=export.num_parameters,
        versions={}, external_data=export.weights_file, external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
        external_data_bytes=len(export.weights),
    )  # fmt: skip


def published(
    network: torch.nn.Module, folder: Path, recipe: Recipe = HALVES, input_kind: str = "uint8", batch_size: int = 6
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    export = export_network(network.eval(), recipe, input_kind)
    model_folder.publish(folder, card_of(export, recipe, input_kind), export, batch_size)
    return folder


def run(graph: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"images": images}), strict=True))
