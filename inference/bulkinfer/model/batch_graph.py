"""A graph of another batch size, made from the graph of free batch in the folder of a network or of its variant.

    python -m bulkinfer.model.batch_graph PARENT_PID

reads folders and batch size as JSON from stdin, and makes the graph if it is missing: a launch does so in a process of its own,
since onnx and the checks are no part of it. A dry run asks for the sidecar only, and nothing is written. Imports no torch.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx

from bulkinfer.errors import BulkinferError, RunError, first_line, os_error_sentence
from bulkinfer.files.atomic import file_sha256, publishing
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.guarded import GRAPH_BYTES, read_bytes
from bulkinfer.host.isolated_call import answer
from bulkinfer.model.card import CARD, GraphSidecar, ModelCard, graph_path, read_card, read_sidecar, write_sidecar
from bulkinfer.model.graph_checks import BATCH, GOLDEN_FILE, PARITY_TOLERANCES, check_graph, read_golden
from bulkinfer.model.integrity import damage

LOCK = ".lock"  # in the folder of the network, also for its variants


def complete(folder: Path, card: ModelCard, batch_size: int) -> str:
    """Add the graph of this batch size if it is missing; returns what was done, "added" or "verified"."""
    if has_batch_size(folder, batch_size):
        return "verified"
    add_batch_size(folder, card, batch_size)
    return "added"


def has_batch_size(folder: Path, batch_size: int) -> bool:
    """True if the graph of this batch size exists and has the recorded hash."""
    graph = graph_path(folder, batch_size)
    try:
        return graph.is_file() and read_sidecar(graph).sha256 == file_sha256(graph, most_bytes=GRAPH_BYTES)
    except BulkinferError:
        return False


def add_batch_size(folder: Path, card: ModelCard, batch_size: int) -> GraphSidecar:
    """Derive model_<batch>.onnx from model.onnx, check it against the golden outputs and publish it."""
    final = graph_path(folder, batch_size)
    golden = read_golden(folder / GOLDEN_FILE)
    with publishing(final) as temporary:
        temporary.write_bytes(fix_batch(read_bytes(graph_path(folder, 0), GRAPH_BYTES), batch_size))
        check_file(temporary, final.name)
        sidecar = check_graph(temporary, final.name, batch_size, golden, card.recipe, PARITY_TOLERANCES[card.precision])
        write_sidecar(final, sidecar)
    return sidecar


def planned_sidecar(folder: Path, batch_size: int) -> GraphSidecar:
    """The sidecar that add_batch_size() would write, without the comparison with the golden outputs. Writes nothing."""
    free = graph_path(folder, 0)
    fixed = fix_batch(read_bytes(free, GRAPH_BYTES), batch_size)
    described = read_sidecar(free)
    inputs, outputs = (
        {name: [batch_size if size == BATCH else size for size in shape] for name, shape in shapes.items()}
        for shapes in (described.inputs, described.outputs)
    )
    return GraphSidecar(hashlib.sha256(fixed).hexdigest(), batch_size, inputs, outputs, {})


def fix_batch(graph: bytes, batch_size: int) -> bytes:
    """The serialised graph with its free dimension set to `batch_size` and all shapes inferred from that.

    Raises RunError if a node contradicts that batch.
    """
    # onnxruntime.tools has a function for this, but importing it imports torch where that is installed.
    model = onnx.ModelProto.FromString(graph)
    for value in (*model.graph.input, *model.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == BATCH:
                dimension.dim_value = batch_size
    try:
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise RunError(
            f"the network fixes its batch inside: at batch {batch_size}, {str(error).strip().splitlines()[-1].strip()}"
        ) from error
    return bytes(model.SerializeToString(deterministic=True))


def check_file(graph: Path, name: str) -> None:
    """onnx.checker on the file with its external weights. Raises RunError."""
    try:
        onnx.checker.check_model(str(graph))
    except onnx.checker.ValidationError as error:
        raise RunError(f"{name}: onnx.checker refuses it: {first_line(error)}") from error


def _make(question: dict[str, Any]) -> dict[str, Any]:
    """Make the graph in `question` under the lock of the network, unless another process has made it meanwhile.

    Returns the fields of its sidecar. In a dry run nothing is made, and not even the lock is taken, which is a file.
    """
    folder, batch_size = Path(question["folder"]), int(question["batch_size"])
    if question["dry_run"]:
        return asdict(planned_sidecar(folder, batch_size))
    try:
        with exclusive(Path(question["network"]) / LOCK, lambda: None):
            card = read_card(folder / CARD)
            if reason := damage(folder, card):
                raise RunError(reason)
            complete(folder, card, batch_size)
    except OSError as error:
        raise RunError(os_error_sentence(error)) from None
    return asdict(read_sidecar(graph_path(folder, batch_size)))


if __name__ == "__main__":
    answer(_make, lambda question: f"batch size {question['batch_size']}")
