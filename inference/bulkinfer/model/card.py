"""card.json, the contract between export and inference, and the sidecar beside each graph."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.atomic import file_sha256, read_json, write_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.wrong_file import describe_wrong_file

RESIZE_MODES = ("short_side", "exact", "none")
ROUNDINGS = ("floor", "round")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
CHANNEL_ORDERS = ("RGB", "BGR")
ORIENTATIONS = ("exif", "stored")
INPUT_KINDS = ("uint8", "float32")
CLASSIFIED = ("logits", "probabilities")  # meanings of an output whose values are those of classes
RANDOM_WEIGHTS = "random"
USERS_FILE = "file given by the user"  # the origin of weights
VARIANTS = ("fp16", "int8")  # folders of a network beside its own graphs, called by their precision
CALIBRATED = ("int8",)  # of them, those that are not made without pictures; the others are made of the graph alone
# How much larger than the resized picture a reduced one must be. At 1.0 the reduction does most of the resizing, which shows:
# on crops of photographs 0.6 % of the clear classes changed, at 1.1 0.1 %.
_REDUCED_MARGIN = 1.1
_SMOOTH = ("bilinear", "bicubic", "lanczos")  # others are so narrow that they show single pixels, which a reduction has not


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every rule that moves a pixel between the decoded picture and the network's input.

    The prepared picture is `height` x `width`. `resize` is "short_side" (short side becomes `resize_size` pixels, the long
    side keeps the aspect and is rounded by `long_side_rounding`), "exact" (straight to resize_size x resize_size, no
    aspect kept) or "none". A centre crop follows: offset (side - crop) / 2, rounded by `crop_offset` (torchvision's
    `int(round(...))` is "round", halves to even); where the picture is smaller than the crop it is padded with `fill`, in
    grey levels. Values are scaled from 0..255 to `value_range`, then (x - mean) / std in the order of `channels`.
    """

    height: int
    width: int
    resize: str
    resize_size: int
    crop_fraction: float
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    long_side_rounding: str = "floor"
    crop_offset: str = "round"
    antialias: bool = True
    fill: tuple[int, int, int] = (0, 0, 0)
    channels: str = "RGB"
    value_range: tuple[float, float] = (0.0, 1.0)
    orientation: str = "exif"

    @property
    def short_side_needed(self) -> int:
        """Pixels on its short side that a picture must keep where it may be decoded at a reduced size; 0: it may not be."""
        if self.resize == "none" or self.interpolation not in _SMOOTH:
            return 0
        return math.ceil(_REDUCED_MARGIN * self.resize_size)

    def reduce_to(self, decode: str) -> int:
        """The short side in pixels that JPEGs may be decoded at under --decode `decode`; 0: they are decoded exactly."""
        return self.short_side_needed if decode == "fast" else 0

    @property
    def scale(self) -> tuple[float, ...]:
        """By channel, in the order of `channels`: what a value of 0..255 is multiplied with. See `offset`."""
        low, high = self.value_range
        return tuple((high - low) / 255 / std for std in self.std)

    @property
    def offset(self) -> tuple[float, ...]:
        """What is then added. One multiplication and one addition: computed in float64, so that only these two round."""
        return tuple((self.value_range[0] - mean) / std for mean, std in zip(self.mean, self.std, strict=True))

    def __post_init__(self) -> None:
        for name, legal in (
            ("resize", RESIZE_MODES),
            ("long_side_rounding", ROUNDINGS),
            ("crop_offset", ROUNDINGS),
            ("interpolation", INTERPOLATIONS),
            ("channels", CHANNEL_ORDERS),
            ("orientation", ORIENTATIONS),
        ):
            if (value := getattr(self, name)) not in legal:
                raise UsageError(f"recipe: {name} is {value!r}; known are {', '.join(legal)}")
        for name in ("mean", "std", "fill", "value_range"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.antialias:
            raise UsageError("recipe: antialias false is not supported; pictures are resized with antialiasing")
        if min(self.height, self.width) < 1 or (self.resize != "none" and self.resize_size < 1):
            raise UsageError("recipe: height, width and resize_size must be at least 1 pixel")
        if len(self.mean) != 3 or len(self.std) != 3 or len(self.fill) != 3 or 0 in self.std:
            raise UsageError("recipe: mean, std and fill need three values each, and no std may be 0")
        if len(self.value_range) != 2:
            raise UsageError("recipe: value_range needs two values, those of black and white")


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
        """What `get_model --weights` must say to get the same again; of a file that the user gave only its name is known."""
        return self.source if self.is_random or self.origin == USERS_FILE or "://" in self.source else "auto"


class Calibration(TypedDict):
    """How a variant came about: pictures used, the candidate that was chosen, and the figures of the gate.

    `candidates` holds what fp32 and each candidate on the first provider differ by, with the objection to it, `judged` the
    figures of the chosen one by provider. Without pictures, `pictures_sha256` is empty and the golden ones were `held_out`.
    """

    pictures_sha256: str
    calibrated: int
    held_out: int
    chosen: str
    candidates: dict[str, dict[str, Any]]
    judged: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The facts of a network: all that inference needs to know beside the graph itself.

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
    source: str = "zoo"  # or "onnx", "checkpoint": from a file or a run, without which get_model cannot make it again
    precision: str = "fp32"  # of the graph's own arithmetic: fp32, fp16 or int8
    fixed_batch: int = 0  # the only batch size that the graph can run; 0: any
    calibration: Calibration | None = None  # of a variant

    def __post_init__(self) -> None:
        if self.input not in INPUT_KINDS:
            raise UsageError(f"card: input is {self.input!r}; known are {', '.join(INPUT_KINDS)}")
        if "/" in self.external_data or "\0" in self.external_data or self.external_data in ("", ".", ".."):
            raise UsageError(f"card: external_data is {self.external_data!r}; it must be the name of a file beside the card")
        object.__setattr__(self, "labels", tuple(self.labels))

    @property
    def classified(self) -> str:
        """The output that the best classes come from; empty if there is none."""
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


def _build(cls: Any, value: Any, path: Path) -> Any:
    """cls(**value) without unknown keys; a missing one, one of a wrong type and an illegal value are named with their file."""
    kinds = get_type_hints(cls)
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged (its {cls.__name__.lower()} is no object)")
    given = {known.name: value[known.name] for known in fields(cls) if known.name in value}
    if told := next(filter(None, (mismatch(item, kinds[name], name) for name, item in given.items())), ""):
        raise DamagedError(f"{path} is damaged ({told})")
    try:
        return cls(**given)
    except TypeError as error:
        raise DamagedError(f"{path} is damaged ({error})") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def write_card(path: Path, card: ModelCard) -> None:
    """Publish card.json."""
    write_json(path, asdict(card))


def read_card(path: Path) -> ModelCard:
    """Read card.json. Raises UsageError if missing or newer, DamagedError if damaged."""
    value = read_json(path)
    recipe = _build(Recipe, value.get("recipe", {}), path)
    weights = _build(Weights, value.get("weights", {}), path)
    card: ModelCard = _build(ModelCard, {**value, "recipe": recipe, "weights": weights}, path)
    return card


def graph_path(folder: Path, batch_size: int) -> Path:
    """model_<batch>.onnx, or model.onnx for the dynamic one (batch_size 0)."""
    return folder / (f"model_{batch_size}.onnx" if batch_size else "model.onnx")


def variant_folder(folder: Path, precision: str) -> Path:
    """Where a model folder keeps its variant in another precision: a folder of the same kind."""
    return folder / precision


def is_made_of(variant: ModelCard, card: ModelCard) -> bool:
    """Whether a variant belongs to the network of `card` as it is now, and not to an export that it replaced."""
    names = (
        "weights",
        "origin",
        "recipe",
        "input",
        "outputs",
        "labels",
        "fixed_batch",
    )  # origin tells weights in a second file
    return all(getattr(variant, name) == getattr(card, name) for name in names)


def write_sidecar(graph: Path, sidecar: GraphSidecar) -> None:
    """Publish model_6.json beside model_6.onnx."""
    write_json(graph.with_suffix(".json"), asdict(sidecar))


def read_sidecar(graph: Path) -> GraphSidecar:
    """Read a graph's sidecar. Raises UsageError if missing or newer, DamagedError if damaged."""
    path = graph.with_suffix(".json")
    sidecar: GraphSidecar = _build(GraphSidecar, read_json(path), path)
    return sidecar


def check_graph_files(folder: Path, batch_size: int) -> tuple[ModelCard, GraphSidecar, Path]:
    """Card, sidecar and resolved path of the graph for `batch_size`, with the graph's hash checked.

    The weights' hash is not read here (it costs a read of the whole file); the launcher checks it once.
    Raises DamagedError naming the file that does not fit its record or does not describe the outputs.
    """
    card = read_card(folder / "card.json")
    if not card.outputs or (card.source == "zoo" and not card.classified):
        raise DamagedError(f"{folder / 'card.json'} is damaged (its outputs lack logits)")
    graph = graph_path(folder, batch_size)
    sidecar = read_sidecar(graph)
    for name in card.outputs:
        shape = sidecar.outputs.get(name, [])
        if len(shape) < 2 or not all(isinstance(size, int) for size in shape[1:]):
            raise DamagedError(f"{graph.with_suffix('.json')} is damaged (no shape of {name})")
    if (found := file_sha256(graph)) != sidecar.sha256:
        why = describe_wrong_file(graph) or f"sha256 {found[:12]}, recorded {sidecar.sha256[:12]}"
        raise DamagedError(f"{graph} is not the graph of {graph.with_suffix('.json').name} ({why})")
    return card, sidecar, Path(graph).resolve()
