"""The graph cache in a launch: it looks for the entry of its graph, and makes one where several workers would share it."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from pathlib import Path

from bulkinfer.errors import DamagedError, os_error_sentence
from bulkinfer.host.cores import core_budget
from bulkinfer.host.isolated_call import Failure, ask
from bulkinfer.model.lookup import Model
from bulkinfer.runtime.graph_cache import (
    Entry,
    entry_folder,
    facts_of,
    find_entry,
    find_refusal,
    is_switched_off,
    write_refusal,
)
from bulkinfer.runtime.providers import SessionSpec, entry_of

log = logging.getLogger("bulkinfer")

_LEAST_BYTES = 1 << 20  # of weights; smaller networks open at once, and have next to nothing to share


def with_cached_graph(session: SessionSpec, model: Model, workers: int) -> SessionSpec:
    """`session`, to be opened by so many workers, with the cached graph that they open in place of the graph of `model`.

    A launch of one worker uses an entry that is there. Making one costs more than one worker gains from it. Where there is no
    entry, and it cannot be made, the session stays as it is, and the log says why. Raises UsageError for a wrong value of
    BULKINFER_GRAPH_CACHE.
    """
    weights_bytes = (model.graph.parent / model.card.external_data).stat().st_size
    if is_switched_off() or weights_bytes < _LEAST_BYTES or not entry_of(session.provider, session.backend).is_cached:
        return session
    facts = facts_of(model.graph, model.sidecar.sha256, model.card.external_data_sha256)
    folder = entry_folder(model.graph, facts)
    if refusal := find_refusal(folder, facts):
        log.info(f"graph cache: not used: {refusal}; remove {folder} to try again")
        return session
    try:
        entry, damage = find_entry(folder, facts), ""
    except DamagedError as error:
        entry, damage = None, str(error)
    if entry is None and workers > 1:
        entry = _made(session, folder, facts, weights_bytes, damage)
    elif damage:
        log.warning(f"graph cache: {damage}: it is not used, and the next launch of several workers makes it again")
    return session if entry is None else replace(session, cached_graph=entry.graph, cached_stamp=entry.stamp)


def _made(session: SessionSpec, folder: Path, facts: dict[str, str], weights_bytes: int, damage: str) -> Entry | None:
    """A new entry; None if it cannot be made, which is logged, and recorded where later launches would fail as well."""
    began = time.monotonic()
    log.info(f"graph cache: {session.graph} is optimised for all workers, once")
    single = replace(session, streams=1, threads_per_stream=core_budget().usable)
    question = {"session": asdict(single), "facts": facts, "weights_bytes": weights_bytes}
    made = ask("bulkinfer.runtime.optimise_graph", question, "graph cache")
    before = f"; {damage}" if damage else ""
    # other sentences are of a full or read-only disk, of an error of onnxruntime that may come from one, or of an ended launch
    refusal = str(made) if isinstance(made, Failure) else "" if isinstance(made, str) else made.get("refusal", "")
    if refusal:
        before += _recorded(folder, facts, refusal)
    if refusal or isinstance(made, str):
        log.warning(f"graph cache: not made ({refusal or made}){before}: each worker optimises the graph by itself")
        return None
    entry = Entry(**made)
    log.info(f"graph cache: made {entry.graph} in {time.monotonic() - began:.1f} sec{before}")
    return entry


def _recorded(folder: Path, facts: dict[str, str], refusal: str) -> str:
    """Record for later launches that the entry cannot be made; returns what to add to the log line."""
    try:
        write_refusal(folder, facts, refusal)
    except OSError as error:
        return f"; that could not be recorded ({os_error_sentence(error)})"
    return f"; recorded in {folder}, later launches do not try again"
