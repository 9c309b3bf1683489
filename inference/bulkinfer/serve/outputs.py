"""What a network gives its clients: the outputs of its graph, and the columns of a row that follow from them.

Shape letters: N pictures, K classes kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bulkinfer.model.card import CLASSIFIED, ModelCard
from bulkinfer.model.scores import softmax
from bulkinfer.results.rows import top_classes
from bulkinfer.serve.batcher import Answer
from bulkinfer.serve.messages import TensorFacts
from bulkinfer.serve.refusals import InvalidError
from bulkinfer.serve.tensors import BYTES, Tensor, tensor_of
from bulkinfer.types import Array

ERRORS = "errors"  # an output that is given only to who names it: '' for each picture, or its stage and message
NO_CLASS = -1  # in class_ids, of a picture that failed


class Outputs:
    """The outputs of one network. A graph's own output hides a column of the same name."""

    def __init__(self, card: ModelCard, shapes: dict[str, tuple[int, ...]], top_k: int) -> None:
        """`shapes` are those of the graph's outputs, without the batch axis."""
        self._card, self._shapes = card, shapes
        self._kept = min(top_k, shapes[card.classified][-1]) if card.classified in shapes else 0
        columns: dict[str, Callable[[Answer, Array], Tensor]] = {}
        if self._kept:
            columns = {"class_ids": self._class_ids, "scores": self._scores}
            if card.labels:
                columns["class_names"] = self._class_names
        self._columns = {name: make for name, make in columns.items() if name not in shapes}

    def facts(self) -> list[TensorFacts]:
        """The outputs of the metadata."""
        found = [TensorFacts(name, "FP32", (-1, *shape)) for name, shape in self._shapes.items()]
        kinds = {"class_ids": "INT32", "scores": "FP32", "class_names": BYTES}
        return found + [TensorFacts(name, kinds[name], (-1, self._kept)) for name in self._columns]

    def check(self, wanted: Sequence[str]) -> None:
        """Raises RefusedError with the known names for an output that the network does not give."""
        known = [*self._shapes, *self._columns, ERRORS]
        for name in wanted:
            if name not in known:
                raise InvalidError(f"{self._card.name} has no output {name!r}; known are {', '.join(known)}")

    def tensors(self, answer: Answer, count: int, wanted: Sequence[str]) -> list[Tensor]:
        """The wanted outputs for `count` pictures. Without ERRORS among them a picture that failed fails the request.

        The row of a failed picture holds NaN, NO_CLASS and empty names.
        """
        if answer.errors and ERRORS not in wanted:
            failures = [f"pictures[{index}]: {stage}: {text}" for index, (stage, text) in sorted(answer.errors.items())]
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise InvalidError(f"{failures[0]}{more}; ask for the output {ERRORS!r} to get the rows of the others")
        filled = Answer(self._with_failed(answer, count), answer.errors)
        names, found = wanted or [*self._shapes, *self._columns], []
        best = self._best(filled) if any(name in self._columns for name in names) else None
        for name in names:
            if name in self._shapes:
                found.append(tensor_of(name, filled.outputs[name]))
            elif best is not None and name in self._columns:
                found.append(self._columns[name](filled, best))
            else:
                texts = (": ".join(answer.errors.get(index, ())) for index in range(count))
                found.append(tensor_of(ERRORS, [text.encode() for text in texts]))
        return found

    def _with_failed(self, answer: Answer, count: int) -> dict[str, Array]:
        """The outputs as float32, as in rows, with NaN for failed pictures."""
        found = {name: values.astype(np.float32, copy=False) for name, values in answer.outputs.items()}
        if answer.errors:
            found = found or {name: np.zeros((count, *shape), np.float32) for name, shape in self._shapes.items()}
            for values in found.values():
                values[list(answer.errors)] = np.nan
        return found

    def _best(self, answer: Answer) -> Array:
        """The best classes of each picture; NO_CLASS for those that failed."""
        best = top_classes(answer.outputs[self._card.classified], self._kept)
        best[list(answer.errors)] = NO_CLASS
        return best

    def _class_ids(self, _answer: Answer, best: Array) -> Tensor:
        return tensor_of("class_ids", best)

    def _scores(self, answer: Answer, best: Array) -> Tensor:
        values = answer.outputs[self._card.classified]
        if self._card.outputs[self._card.classified] == CLASSIFIED[0]:
            values = softmax(values)
        return tensor_of("scores", np.take_along_axis(values, best, axis=1).astype(np.float32))

    def _class_names(self, _answer: Answer, best: Array) -> Tensor:
        labels = self._card.labels
        names = [labels[number].encode() if number != NO_CLASS else b"" for number in best.ravel().tolist()]
        return tensor_of("class_names", names, best.shape)
