"""Which outputs of a foreign graph are kept, under which names, and what the classified one means."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import.graph import Unreadable
from bulkinfer.export.onnx_import.rewrite import GraphOutput
from bulkinfer.results.parquet_parts import schema
from bulkinfer.results.rows import Task

SUM_TOLERANCE = 1e-3  # of a row of probabilities; half precision over 1000 classes stays below
_ZIPMAP = " (a ZipMap: export the classifier with options={'zipmap': False} to get its probabilities)"
_EXACT = 2**24  # float32 holds every whole number up to this one
_NO_TASK = Task(1, frozenset({"topk"}), True, 1, ("",), "", {})
# Names of columns, of --save, of the input, and reserved words of numpy's archives. Compared without regard to case, as many
# readers of Parquet compare column names.
TAKEN = frozenset({*schema(_NO_TASK).names, "topk", "none", "images", "file", "allow_pickle"})


@dataclass(frozen=True, slots=True)
class Observed:
    """The outputs with one row per picture, with shape and dtype of a row; and for each other output, why it is left out."""

    rows: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
    left_out: dict[str, str]


def observe(runs: Sequence[tuple[int, Mapping[str, Any]]]) -> Observed:
    """The outputs, seen from runs: the number of pictures of each, and its outputs by name. One must be of a single size."""
    rows, left_out = {}, {}
    for name in runs[0][1]:
        values = [(count, found[name]) for count, found in runs]
        if reason := _why_not_rows(values):
            left_out[name] = reason
        else:
            first = values[0][1]
            rows[name] = (tuple(first.shape[1:]), first.dtype)
    return Observed(rows, left_out)


def _why_not_rows(values: Sequence[tuple[int, Any]]) -> str:
    """Why an output is not one row of numbers per picture; empty if it is."""
    for _, value in values:
        if isinstance(value, Unreadable):
            return f"it holds {value.kind}, a type that numpy lacks"
        if isinstance(value, list):
            return "it holds no numbers" + (_ZIPMAP if value and isinstance(value[0], dict) else "")
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
            return "it holds no numbers"
    shapes: dict[int, set[tuple[int, ...]]] = {}
    for count, value in values:
        shapes.setdefault(count, set()).add(value.shape)
    if any(len(seen) > 1 for seen in shapes.values()):
        return "its size depends on the picture"
    for count, value in values:
        if value.ndim == 0:
            return "it is a single number"
        if len(value) != count:
            return f"it has {len(value)} rows for a batch of {count}"
        if value.dtype.kind in "iu" and max(abs(int(value.max(initial=0))), abs(int(value.min(initial=0)))) > _EXACT:
            return f"it holds whole numbers beyond {_EXACT:,}, which float32 would round"
    if len({value.shape[1:] for _, value in values}) > 1:
        return "its size changes from run to run"
    return ""


def choose_classified(output_name: str, observed: Observed) -> tuple[str, str]:
    """The output to classify, and why that one. Raises UsageError with the list if it is not clear."""
    labels = [name for name, (shape, dtype) in observed.rows.items() if _are_labels(shape, dtype)]
    names = [name for name in observed.rows if name not in labels]
    if output_name:
        if output_name in observed.left_out:
            raise UsageError(f"--output_name: {output_name} cannot be used: {observed.left_out[output_name]}")
        if output_name in labels:
            raise UsageError(f"--output_name: {_no_scores(output_name, observed)}")
        if output_name not in names:
            raise UsageError(f"--output_name: there is no output {output_name!r}; there are {', '.join(observed.rows)}")
        return output_name, "as asked"
    if not names:
        raise UsageError(f"--onnx: {_no_scores(labels[0], observed)}; --scores none adopts the graph without classes")
    if len(names) == 1:
        only = "the only output" + (" with one row per picture" if observed.left_out else "")
        return names[0], f"{only}, beside whole numbers in {', '.join(labels)}" if labels else only
    if "logits" in names:
        return "logits", "by its name"
    raise UsageError(
        f"--output_name is needed: which of {', '.join(names)} holds the class values? (--scores none: none of them)"
    )


def _are_labels(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """True for class numbers; several numbers of 8 bits may be the scores of a quantised network."""
    return dtype.kind == "b" or (dtype.kind in "iu" and (dtype.itemsize > 1 or math.prod(shape) == 1))


def _no_scores(name: str, observed: Observed) -> str:
    """Why an output of labels is not classified, and what to do."""
    found = f"output {name} holds whole numbers ({observed.rows[name][1]}), which are class numbers and not scores"
    maps = [other for other, why in observed.left_out.items() if why.endswith(_ZIPMAP)]
    if maps:
        return f"{found}; the scores are in {maps[0]}, a ZipMap: export the classifier with options={{'zipmap': False}}"
    return f"{found}: name the output with the scores, or export the network with one"


def plan_outputs(observed: Observed, classified: str) -> list[GraphOutput]:
    """How each output is published: at least one value per row, under a name that is not TAKEN."""
    outputs: list[GraphOutput] = []
    sources = [source for source in observed.rows if _clean(source) == source and source.lower() not in TAKEN]
    kept = {source for source in sources if [other.lower() for other in sources].count(source.lower()) == 1}
    taken = TAKEN | {source.lower() for source in kept}  # an output that can keep its name keeps it
    for source, (shape, dtype) in observed.rows.items():
        ours: tuple[int, ...] = shape or (1,)
        if source == classified:
            if sum(size > 1 for size in shape) > 1:
                raise UsageError(f"output {source} has rows of {list(shape)}: class values are one row of numbers per picture")
            ours = (math.prod(shape),)
        name = _clean(source)
        if source not in kept:
            name = _free_name(name, taken, {output.name.lower(): output.source.lower() for output in outputs})
        outputs.append(GraphOutput(source, name, shape, ours, str(dtype)))
    return outputs


def _free_name(name: str, taken: Set[str], given: Mapping[str, str]) -> str:
    """`name` with a prefix, or with a number where only case tells it from an output that has that; `given`: name -> source."""
    while name.lower() in taken or name.lower() in given:
        prefixed = f"output_{name}"
        if given.get(prefixed.lower()) == name.lower():
            return next(f"{prefixed}_{count}" for count in range(2, 1 << 20) if f"{prefixed}_{count}".lower() not in given)
        name = prefixed
    return name


def _clean(source: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", source).lstrip("-") or "output"


def meaning_of_scores(flag: str, rows_NC: NDArray[np.float32]) -> tuple[str, str]:
    """The meaning of the classified output, logits or probabilities, and the reason; `flag` is --scores.

    Raises UsageError if the values contradict the flag, or do not decide.
    """
    low, high = float(rows_NC.min()), float(rows_NC.max())
    in_range = low >= -SUM_TOLERANCE and high <= 1 + SUM_TOLERANCE
    sums_to_one = bool((np.abs(rows_NC.sum(axis=1, dtype=np.float64) - 1) <= SUM_TOLERANCE).all())
    seen = f"on the golden pictures they go from {low:.3g} to {high:.3g}"
    looks_normal = in_range and sums_to_one and rows_NC.shape[1] > 1
    if flag == "probabilities":
        if not in_range:
            raise UsageError(f"--scores probabilities: the values are no probabilities, {seen}: give --scores logits")
        return flag, "as asked" + ("; each row sums to 1" if looks_normal else "; rows do not sum to 1")
    if flag == "logits":
        if rows_NC.shape[1] == 1:
            raise UsageError("--scores logits: the softmax of a single value is always 1: give --scores probabilities, or none")
        if looks_normal:
            raise UsageError(f"--scores logits: the values look like probabilities, {seen} and each row sums to 1: "
                             "give --scores probabilities")  # fmt: skip
        return flag, "as asked"
    if looks_normal:
        return "probabilities", f"{seen}, and each row sums to 1"
    if not in_range and rows_NC.shape[1] > 1:
        return "logits", f"{seen}, so they are no probabilities"
    raise UsageError(f"--scores is needed: the values can be logits or probabilities, {seen}")
