"""Checks the files of a network or of its variant against their records. Needs no onnx."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.errors import BulkinferError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.guarded import GRAPH_BYTES
from bulkinfer.model.card import CARD, ModelCard, graph_path, is_made_of, read_sidecar, readable_card
from bulkinfer.model.graph_checks import GOLDEN_FILE, read_golden


def damage(folder: Path, card: ModelCard) -> str:
    """What is wrong with the files that all graphs of the folder need; empty if they are sound. Reads all weights."""
    try:
        graph, weights = graph_path(folder, card.fixed_batch), folder / card.external_data
        if not graph.is_file() or file_sha256(graph, most_bytes=GRAPH_BYTES) != read_sidecar(graph).sha256:
            return f"{graph.name} is missing or not the file recorded"
        if not weights.is_file() or file_sha256(weights, most_bytes=card.most_weights_bytes) != card.external_data_sha256:
            return f"{weights.name} is missing or not the file recorded"
        read_golden(folder / GOLDEN_FILE)
    except BulkinferError as error:
        return str(error)
    return ""


def variant_damage(folder: Path, card: ModelCard | None) -> str:
    """Why a folder holds no sound variant of the network of `card` (None: of any network); empty if it does."""
    found = readable_card(folder)
    if found is None:
        return "is damaged (its card cannot be read)" if (folder / CARD).exists() else "does not exist"
    if card is not None and not is_made_of(found, card):
        return "was made of another export of the network"
    reason = damage(folder, found)
    return f"is damaged ({reason})" if reason else ""
