"""Judges graphs of a network in a cheaper precision: compares their class values with those of fp32 on the same pictures.

Shape letters: N pictures, C classes, H height, W width.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import naming
from bulkinfer.host.cores import core_budget
from bulkinfer.images.preprocess import normalise
from bulkinfer.model.accuracy_gate import Figures, compare, count_clear, objection
from bulkinfer.model.batch_graph import fix_batch
from bulkinfer.model.card import ModelCard
from bulkinfer.runtime.fixed_batch import FixedBatch
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.runtime.session import Session

log = logging.getLogger("bulkinfer")

Tried = dict[str, dict[str, Any]]  # figures by candidate or provider


@dataclass(frozen=True)
class Chosen:
    """A graph that passed, and its name among the candidates.

    For the card: `tried` holds the figures of all candidates, `judged` those of this one by provider.
    """

    model: onnx.ModelProto
    name: str
    tried: Tried
    judged: Tried


def feed(card: ModelCard, images_NHWC: NDArray[np.uint8]) -> NDArray[Any]:
    """Prepared pictures as the graph takes them: uint8 N x H x W x 3, or float32 N x 3 x H x W."""
    return images_NHWC if card.input == "uint8" else normalise(images_NHWC, card.recipe)


class Judge:
    """Pictures with their class values in fp32; `figures` compares a graph in `precision` with these.

    `fp32` is the published graph. `batch_size` is set in graphs of free batch; 0: they have a fixed one. `folder` is for
    temporary files.
    """

    def __init__(
        self,
        precision: str,
        card: ModelCard,
        fp32: Path,
        images_NHWC: NDArray[np.uint8],
        batch_size: int,
        folder: Path,
    ) -> None:
        self._precision, self._card, self._images_NHWC, self._batch_size = precision, card, images_NHWC, batch_size
        self._path = folder / "candidate.onnx"
        self._expected_NC = self._class_values(fp32, "cpu", "fp32")
        self._are_logits = card.outputs[card.classified] == "logits"
        self.clear = count_clear(self._expected_NC, are_logits=self._are_logits)  # pictures with a clear answer in fp32

    def figures(self, model: onnx.ModelProto, provider: str, what: str, backend: str = "") -> tuple[Figures, str]:
        """The figures of `model` on `provider`, and why they do not pass (empty: they do); logs both. `what` names it there."""
        graph = model.SerializeToString(deterministic=True)
        with naming(self._path):
            self._path.write_bytes(fix_batch(graph, self._batch_size) if self._batch_size else graph)
        try:
            values_NC = self._class_values(self._path, provider, self._precision, backend)
        except UsageError as error:  # not the user's fault: get_model has no --device
            figures = Figures(len(self._images_NHWC), 0, 0.0, 0.0, math.inf)
            log.info(f"{self._precision}, {what}, on {provider}: {error}")
            return figures, f"{provider} cannot run it"
        figures = compare(self._expected_NC, values_NC, are_logits=self._are_logits)
        why = objection(figures, self._precision)
        log.info(f"{self._precision}, {what}, on {provider}: {figures}: {why or 'passes'}")
        return figures, why

    def _class_values(self, graph: Path, provider: str, precision: str, backend: str = "") -> NDArray[Any]:
        """The classified output, N x C; NaN for a picture for which any output is not finite."""
        spec = SessionSpec(str(graph), provider, precision, 1, core_budget().usable, backend=backend)
        session = Session(spec, list(self._card.outputs))
        network = FixedBatch(lambda part_NHWC: session.run(feed(self._card, part_NHWC)), session.batch_shape[0], padding=None)
        return network.finite_values(self._images_NHWC, [self._card.classified])
