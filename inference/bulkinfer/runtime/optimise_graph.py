"""Makes an entry of the graph cache, in a process of its own: a graph that ends the process costs the launch only the cache.

    python -m bulkinfer.runtime.optimise_graph PARENT_PID

reads a question as JSON from stdin (a session and the facts of the entry), and answers with the entry that it published.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.errors import DamagedError, RunError
from bulkinfer.files.atomic import TEMPORARY_PREFIX, remove_abandoned, temporary_path, write_owner_file
from bulkinfer.host.isolated_call import answer
from bulkinfer.runtime.graph_cache import GRAPH, Entry, entry_folder, find_entry, remove_superseded, write_record
from bulkinfer.runtime.onnxruntime_graph import open_file
from bulkinfer.runtime.providers import SessionSpec

_MOST_GROWTH = 4  # free space is asked for as for weights that are so many times as large, which leaves some for results


class OtherBitsError(RunError):
    """The optimised graph gives other bits than the graph, as it will each time."""


def make_entry(spec: SessionSpec, facts: dict[str, str], weights_bytes: int) -> Entry:
    """Optimise the graph of `spec` and publish the result. `weights_bytes` is the size of the graph's own weights.

    Raises OSError if the folder cannot be written, RunError if the disk is too full, OtherBitsError if the optimised graph
    gives other bits than the graph, and what onnxruntime raises.
    """
    folder = entry_folder(Path(spec.graph), facts)
    folder.parent.mkdir(exist_ok=True)
    remove_abandoned(folder.parent, f"{TEMPORARY_PREFIX}*")
    remove_superseded(folder.parent, facts)
    if (free := shutil.disk_usage(folder.parent).free) < _MOST_GROWTH * weights_bytes:
        raise RunError(
            f"{folder.parent} is on a disk with {free >> 20} MiB free, {_MOST_GROWTH * weights_bytes >> 20} are needed"
        )
    work = temporary_path(folder)
    try:
        work.mkdir()
        owner = write_owner_file(work)
        _optimise(spec, work / GRAPH)
        entry = _publish(work, folder, facts)
        (folder / owner.name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)  # it is there only after an error, or where another launch was faster
    return entry


def _optimise(spec: SessionSpec, saved: Path) -> None:
    """Save the optimised graph, and run both on the same noise. Raises OtherBitsError if their outputs differ in a bit."""
    plain, _ = open_file(spec, spec.graph, save_to=str(saved))
    cached, _ = open_file(spec, str(saved), is_optimised=True)
    (graph_input,) = plain.get_inputs()
    noise = np.random.default_rng(0).random(graph_input.shape, np.float32)
    images = (255 * noise).astype(np.uint8) if graph_input.type == "tensor(uint8)" else noise
    expected, found = (session.run(None, {graph_input.name: images}) for session in (plain, cached))
    if any(there.tobytes() != here.tobytes() for there, here in zip(expected, found, strict=True)):
        raise OtherBitsError(f"the optimised graph of {spec.graph} gives other bits than the graph")


def _publish(work: Path, folder: Path, facts: dict[str, str]) -> Entry:
    """Rename `work` to `folder`, in place of a damaged entry; or take the entry that another launch has published meanwhile."""
    made = write_record(work, facts)
    try:
        if (found := find_entry(folder, facts)) is not None:
            return found
    except DamagedError:
        shutil.rmtree(folder)
    os.rename(work, folder)
    return Entry(str(folder / GRAPH), made.stamp)


def _answer(question: dict[str, Any]) -> dict[str, str]:
    """What the process answers: the entry, or as `refusal` why there will never be one."""
    try:
        entry = make_entry(SessionSpec(**question["session"]), question["facts"], question["weights_bytes"])
    except OtherBitsError as error:
        return {"refusal": str(error)}
    return asdict(entry)


if __name__ == "__main__":
    answer(_answer, lambda question: question["session"]["graph"])
