"""card.json, the contract between export and inference, and the sidecar of each graph."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.guarded import GRAPH_BYTES
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.user_path import real_path
from bulkinfer.files.wrong_file import describe_wrong_file
from bulkinfer.model.recipe import Recipe

CARD = "card.json"
INPUT_KINDS = ("uint8", "float32")
CLASSIFIED = ("logits", "probabilities")  # meanings of an output that holds class values
RANDOM_WEIGHTS = "random"
NO_LICENCE = "not stated"
USERS_FILE = "file given by the user"  # the origin of weights
VARIANTS = ("fp16", "int8")  # precisions with a folder of their own inside the folder of the network
CALIBRATED = ("int8",)  # the variants that need pictures; the others are made from the graph alone


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a network's weights come from. `source` is a file name, URL or "random"; `sha256` is of that file."""

    source: str
    sha256: str
    origin: str = ""

    @property
    def is_random(self) -> bool:
        return self.source == RANDOM_WEIGHTS

    @property
    def option(self) -> str:
        """The value of `get_model --weights` that gives the same again; for a file of the user, only its name is known."""
        return self.source if self.is_random or self.origin == USERS_FILE or "://" in self.source else "auto"


class Calibration(TypedDict):
    """How a variant was made: pictures used, the candidate chosen, and the figures of the gate.

    `candidates` holds the figures of each candidate on the first provider with the objection to it, `judged` those of the
    chosen one by provider. Without pictures, `pictures_sha256` is empty and the golden pictures were `held_out`.
    """

    pictures_sha256: str
    calibrated: int
    held_out: int
    chosen: str
    candidates: dict[str, dict[str, Any]]
    judged: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The facts of a network: everything that inference needs besides the graph.

    `outputs` maps each output name to its meaning: "logits" (softmax still to be applied), "probabilities", "embedding" or
    "values" (anything else); at most one is logits or probabilities, and it is the one that is classified.
    `input` is "uint8" (N x H x W x 3, normalised in the graph) or "float32" (N x 3 x H x W, normalised by the worker).
    """

    name: str
    recipe: Recipe
    weights: Weights
    licence: str
    origin: str
    input: str
    outputs: dict[str, str]
    labels: tuple[str, ...]
    num_parameters: int
    versions: dict[str, str]
    external_data: str  # file name of the weights that all graphs of this folder share
    external_data_sha256: str
    source: str = "zoo"  # or "onnx", "checkpoint": made from a file or a run, which get_model needs to make it again
    precision: str = "fp32"  # of the graph's own arithmetic: fp32, fp16 or int8
    fixed_batch: int = 0  # the only batch size that the graph can run; 0: any
    calibration: Calibration | None = None  # only of a variant
    test_size: bool = False  # its recipe is that of get_model --use_test_size
    external_data_bytes: int = 0  # size of `external_data`; 0: not known, since earlier versions did not record it
    # The options that decided the network, see made_with.py; None: made before they were recorded. They are no part of what the
    # network is: it stays the same if its files are named by other paths.
    options: dict[str, str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.input not in INPUT_KINDS:
            raise UsageError(f"card: input is {self.input!r}; known are {', '.join(INPUT_KINDS)}")
        if "/" in self.external_data or "\0" in self.external_data or self.external_data in ("", ".", ".."):
            raise UsageError(f"card: external_data is {self.external_data!r}; it must be the name of a file beside the card")
        object.__setattr__(self, "labels", tuple(self.labels))

    @property
    def most_weights_bytes(self) -> int:
        """The size of `external_data`, or a bound on it: doubles with alignment padding take less, if they are parameters."""
        return self.external_data_bytes or max(1 << 30, 64 * self.num_parameters)

    @property
    def classified(self) -> str:
        """The output with the class values; empty if there is none."""
        return next((name for name, meaning in self.outputs.items() if meaning in CLASSIFIED), "")


@dataclass(frozen=True, slots=True)
class GraphSidecar:
    """Facts of one graph file: its hash, fixed batch (0: dynamic), tensors as name -> shape, parity against the source.

    `parity` holds per output the largest absolute difference and the largest absolute value of the source's output.
    """

    sha256: str
    batch_size: int
    inputs: dict[str, list[int | str]]
    outputs: dict[str, list[int | str]]
    parity: dict[str, dict[str, float]]


def _build(cls: Any, value: Any, path: Path, where: str = "") -> Any:
    """cls(**value) without unknown keys. Raises DamagedError or UsageError naming the file and the wrong or missing key.

    `where` is the key of the value in the file; empty: it is the whole file.
    """
    kinds = get_type_hints(cls)
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged (its {cls.__name__.lower()} is no object)")
    given = {known.name: value[known.name] for known in fields(cls) if known.name in value}
    if reason := next(filter(None, (mismatch(item, kinds[name], name) for name, item in given.items())), ""):
        raise DamagedError(f"{path} is damaged ({reason})")
    needed = [known.name for known in fields(cls) if known.default is MISSING and known.default_factory is MISSING]
    if missing := next((name for name in needed if name not in given), ""):
        raise DamagedError(f"{path} is damaged ({where and f'{where}.'}{missing} is missing)")
    try:
        return cls(**given)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def write_card(path: Path, card: ModelCard) -> None:
    """Publish card.json."""
    write_json(path, {**asdict(card), "recipe": card.recipe.facts()})


def read_card(path: Path) -> ModelCard:
    """Read card.json. Raises UsageError if missing or newer, DamagedError if damaged."""
    return card_of(read_json(path), path)


def readable_card(folder: Path) -> ModelCard | None:
    """The card in a folder; None if it is missing or damaged. Raises UsageError for a card of a newer format."""
    try:
        return read_card(folder / CARD) if (folder / CARD).is_file() else None
    except DamagedError:
        return None


def card_of(value: dict[str, Any], path: Path) -> ModelCard:
    """The card in the content of `path`. Raises UsageError or DamagedError that names the file and what is wrong in it."""
    for name in ("recipe", "weights"):
        if name not in value:
            raise DamagedError(f"{path} is damaged ({name} is missing)")
    recipe = _build(Recipe, value["recipe"], path, "recipe")
    weights = _build(Weights, value["weights"], path, "weights")
    card: ModelCard = _build(ModelCard, {**value, "recipe": recipe, "weights": weights}, path)
    return card


def graph_path(folder: Path, batch_size: int) -> Path:
    """model_<batch>.onnx, or model.onnx for the graph of free batch (batch_size 0)."""
    return folder / (f"model_{batch_size}.onnx" if batch_size else "model.onnx")


def variant_folder(folder: Path, precision: str) -> Path:
    """The folder of a network's variant in another precision."""
    return folder / precision


def is_made_of(variant: ModelCard, card: ModelCard) -> bool:
    """True if a variant was made of the network of `card`, and not of another export that it replaced."""
    # `origin` has the hash of weights in a second file.
    names = ("weights", "origin", "recipe", "input", "outputs", "labels", "fixed_batch")
    return all(getattr(variant, name) == getattr(card, name) for name in names)


def write_sidecar(graph: Path, sidecar: GraphSidecar) -> None:
    """Publish model_6.json beside model_6.onnx."""
    write_json(graph.with_suffix(".json"), asdict(sidecar))


def read_sidecar(graph: Path) -> GraphSidecar:
    """Read a graph's sidecar. Raises UsageError if missing or newer, DamagedError if damaged."""
    path = graph.with_suffix(".json")
    return sidecar_of(read_json(path), path)


def sidecar_of(value: dict[str, Any], path: Path) -> GraphSidecar:
    """The sidecar in the content of `path`. Raises DamagedError that names the file and what is wrong in it."""
    sidecar: GraphSidecar = _build(GraphSidecar, value, path)
    return sidecar


def check_graph_files(folder: Path, batch_size: int) -> tuple[ModelCard, GraphSidecar, Path]:
    """Card, sidecar and resolved path of the graph for `batch_size`, after checking the graph's hash.

    The hash of the weights is not checked, which would read the whole file; the launcher does that once.
    Raises DamagedError naming the file that does not match its record or does not describe the outputs.
    """
    card = read_card(folder / "card.json")
    gives_embedding = {*card.outputs} == {"embedding"} and not card.labels
    if not card.outputs or (card.source == "zoo" and not card.classified and not gives_embedding):
        raise DamagedError(f"{folder / 'card.json'} is damaged (its outputs lack logits)")
    graph = graph_path(folder, batch_size)
    sidecar = read_sidecar(graph)
    for name in card.outputs:
        shape = sidecar.outputs.get(name, [])
        if len(shape) < 2 or not all(isinstance(size, int) for size in shape[1:]):
            raise DamagedError(f"{graph.with_suffix('.json')} is damaged (no shape of {name})")
    if (found := file_sha256(graph, most_bytes=GRAPH_BYTES)) != sidecar.sha256:
        why = describe_wrong_file(graph) or f"sha256 {found[:12]}, recorded {sidecar.sha256[:12]}"
        raise DamagedError(f"{graph} is not the graph of {graph.with_suffix('.json').name} ({why})")
    return card, sidecar, real_path(graph)
