"""models/<name>/ on disk: publish an export, find out what an existing folder lacks.

Imports no torch. The order of writing makes a kill harmless: card.json is removed first and written last, and a folder
without a card is exported again. Callers hold the folder's lock.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer import __version__, zoo
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.atomic import file_sha256, fsync_directory, naming, publishing, remove_stale_temporaries, temporary_path
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.own_folder import require_outside_results
from bulkinfer.files.user_path import made_folder, real_path, require_folder_place, require_utf8
from bulkinfer.model.batch_graph import LOCK, check_file, fix_batch
from bulkinfer.model.card import CARD, GraphSidecar, ModelCard, graph_path, read_card, read_sidecar, write_card, write_sidecar
from bulkinfer.model.graph_checks import GOLDEN_FILE, PARITY_TOLERANCES, check_graph, write_golden
from bulkinfer.model.names import plain
from bulkinfer.model.recipe import Recipe
from bulkinfer.runtime.graph_cache import FOLDER as GRAPH_CACHE

if TYPE_CHECKING:
    from bulkinfer.model.graph_file import Export

log = logging.getLogger("bulkinfer")

GOLDEN = GOLDEN_FILE
_EXPORTERS = ("torch", "onnx", "onnxscript")  # they decide the bytes of a graph, beside weights, recipe and input
_LONGEST_NAME = 100  # job folders and temporary files append more to it
OURS = re.compile(r"model(_\d+)?\.(onnx|json)|weights-[0-9a-f]{16}\.bin|golden\.npz")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A finished folder of a network or of its variant, every graph in it checked.

    `graph` is the file of the batch size asked for, `sidecar` the facts recorded beside it. `done` says what was done in
    `seconds`: "exported", "added" (one more batch size) or "verified" (everything was there).
    """

    folder: Path
    card: ModelCard
    graph: Path
    sidecar: GraphSidecar
    done: str
    seconds: float

    @property
    def name(self) -> str:
        """The name of the network, as --model_name takes it."""
        return self.card.name


def finished(folder: Path, card: ModelCard, batch_size: int, done: str, start: float) -> ModelFolder:
    """The result of work that began at `start`, a reading of time.monotonic()."""
    graph = graph_path(folder, batch_size)
    return ModelFolder(folder, card, graph, read_sidecar(graph), done, time.monotonic() - start)


def check_own_name(name: str) -> None:
    """Raises UsageError for a --name that is no legal folder name, is too long, or belongs to a network of the zoo."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise UsageError(f"--name {name!r}: a name consists of letters, digits, dots, dashes and underscores")
    if len(name) > _LONGEST_NAME:
        raise UsageError(f"--name: a name has at most {_LONGEST_NAME} characters, this one has {len(name)}")
    if name.lower().startswith("timm_") or plain(name) in map(plain, zoo.NETWORKS):
        raise UsageError(f"--name {name}: a network of get_model --list or of timm has this name: give another name")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder; gives False if another get_model was refused meanwhile, which has removed the folder."""
    with ExitStack() as lock:
        try:
            waiting = f"waiting for another get_model that works on {folder}"
            lock.enter_context(exclusive(folder / LOCK, lambda: log.info(waiting)))
        except FileNotFoundError:
            if folder.exists():
                raise
            yield False
            return
        yield True


@contextlib.contextmanager
def locked_folder(model_path: str, name: str) -> Iterator[Path]:
    """Make and lock models/<name>/; gives its real path: onnx and onnxruntime refuse external data behind symbolic links.

    On an error in the block, folders that were made here are removed if nothing is in them.
    """
    require_folder_place(Path(model_path), "--model_path")
    require_outside_results(Path(model_path), "--model_path")
    folder = real_path(Path(model_path) / name)
    require_utf8(folder, "--model_path")
    with made_folder(folder), ExitStack() as lock:
        while not folder.is_dir() or not lock.enter_context(_locked(folder)):
            folder.mkdir(parents=True, exist_ok=True)
        yield folder


def existing_card(folder: Path) -> ModelCard | None:
    """The card of a finished export; None if there is none, or it is damaged, which is logged.

    Raises UsageError for a card of a newer format, and for graphs that get_model did not make.
    """
    remove_stale_temporaries(folder)
    if (folder / CARD).exists():
        try:
            return read_card(folder / CARD)
        except DamagedError as error:
            log.info(f"{error}: it is made again")
            return None
    for graph in sorted(folder.glob("model*.onnx")):
        if not graph.with_suffix(".json").exists():
            raise UsageError(f"{graph} was not made by get_model (no card, no {graph.stem}.json beside it): move it away")
    return None


def export_versions() -> dict[str, str]:
    """Versions of the packages that make a graph, as far as installed: torch is needed only to export."""
    found = {"bulkinfer": __version__}
    for package in _EXPORTERS:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def differences(card: ModelCard, recipe: Recipe, input_kind: str) -> list[str]:
    """Why an export by torch has another recipe or input, or was made by other versions than are installed; empty if not."""
    reasons = []
    if card.input != input_kind:
        reasons.append(f"its input is {card.input}, not {input_kind}")
    if card.recipe != recipe:
        reasons.append("its recipe differs")
    for package, version in export_versions().items():
        if (recorded := card.versions.get(package)) != version:
            reasons.append(f"it was made by {package} {recorded}, now {version}")
    return reasons


def publish(folder: Path, card: ModelCard, export: Export, batch_size: int) -> list[str]:
    """Check an export and publish it with its graph of `batch_size`; it replaces the export in the folder.

    A card with a fixed batch has only the graph of that batch. If a check fails, nothing changes. Returns the names of the
    graphs of other batch sizes that were removed.
    """
    assert card.external_data_bytes == len(export.weights), (card.external_data_bytes, len(export.weights))
    with ExitStack() as temporaries:
        with ExitStack() as on_failure:
            weights = folder / export.weights_file
            is_as_large = weights.is_file() and weights.stat().st_size == len(export.weights)
            if not is_as_large or file_sha256(weights) != card.external_data_sha256:
                if not weights.exists():
                    on_failure.callback(weights.unlink, missing_ok=True)
                with publishing(weights) as temporary:
                    temporary.write_bytes(export.weights)
            checked = _write_graphs(folder, card, export, batch_size, temporaries)
            golden = temporary_path(folder / GOLDEN)
            temporaries.callback(golden.unlink, missing_ok=True)
            with naming(folder / GOLDEN):
                write_golden(golden, export.golden)
            removed = _clear(folder, keep=export.weights_file)
            on_failure.pop_all()
        with publishing(folder / GOLDEN) as renamed:
            golden.rename(renamed)
        for temporary, final, sidecar in checked:
            write_sidecar(final, sidecar)
            with publishing(final) as renamed:
                temporary.rename(renamed)
    write_card(folder / CARD, card)
    return [name for name in removed if name.endswith(".onnx") and not (folder / name).exists()]


def _write_graphs(
    folder: Path, card: ModelCard, export: Export, batch_size: int, temporaries: ExitStack
) -> list[tuple[Path, Path, GraphSidecar]]:
    """Write and check the graphs: of each its temporary file, which `temporaries` removes, its name, and its sidecar."""
    checked = []
    for batch, graph in _graphs(card, export, batch_size).items():
        final = graph_path(folder, batch)
        temporary = temporary_path(final)
        temporaries.callback(temporary.unlink, missing_ok=True)
        with naming(final):
            temporary.write_bytes(graph)
        check_file(temporary, final.name)
        tolerance = PARITY_TOLERANCES[card.precision]
        checked.append((temporary, final, check_graph(temporary, final.name, batch, export.golden, card.recipe, tolerance)))
    return checked


def _graphs(card: ModelCard, export: Export, batch_size: int) -> dict[int, bytes]:
    """The graphs to publish, by batch size; 0 is the graph with a free batch."""
    if card.fixed_batch:
        assert card.fixed_batch == batch_size, (card.fixed_batch, batch_size)
        return {batch_size: export.graph}
    return {0: export.graph, batch_size: fix_batch(export.graph, batch_size)}


def _clear(folder: Path, keep: str) -> list[str]:
    """Remove the card, then the graphs, then the rest of the previous export; returns their names."""
    (folder / CARD).unlink(missing_ok=True)
    fsync_directory(folder)
    if (folder / GRAPH_CACHE).is_dir() and not (folder / GRAPH_CACHE).is_symlink():
        shutil.rmtree(folder / GRAPH_CACHE)  # made of the graphs that are removed next
    names = [entry.name for entry in folder.iterdir() if OURS.fullmatch(entry.name) and entry.name != keep]
    names.sort(key=lambda name: (not name.endswith(".onnx"), name))  # a graph never outlives the sidecar that marks it as ours
    for name in names:
        (folder / name).unlink()
    return names
