"""The checks that a graph must pass before it is published: its batch, independent rows, agreement with the source network.

Shape letters: N batch, H height, W width, C channels, D values per row. Imports no torch.
"""

from __future__ import annotations

import lzma
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.errors import DamagedError, RunError, first_line
from bulkinfer.files.atomic import file_sha256, publishing
from bulkinfer.files.guarded import open_regular
from bulkinfer.model.card import GraphSidecar
from bulkinfer.model.recipe import Recipe
from bulkinfer.runtime.fixed_batch import FixedBatch
from bulkinfer.runtime.onnxruntime_graph import runtime_reason
from bulkinfer.runtime.providers import runtime

BATCH = "batch"  # name of the free dimension
PARITY_TOLERANCES = {
    "fp32": 1e-4,
    "fp16": 1e-2,
    "int8": 5e-2,
}  # of the largest absolute value of an output, by the graph's arithmetic
PADDING_TOLERANCE = 1e-6  # the same: rounding by another split over threads may cost so much, other rows must change nothing
ROUNDING = 1e-6  # a difference that is never a fault: float32 has so much of values near 1
_SCALES_APART = 100  # so much larger is a channel of another kind
_MOST_KINDS = 32  # in a flat row
GOLDEN_FILE = "golden.npz"
GOLDEN_COUNT = 4
ARRAYS_BYTES = 3 << 28  # of all arrays of a file, unpacked
# Reading an npz or npy file raises these if it is damaged or claims arrays beyond all memory. Pickles in it are never read.
BROKEN_ARRAYS = (
    *(OSError, ValueError, KeyError, EOFError, TypeError, OverflowError, MemoryError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, RecursionError),
)

Outputs = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Golden:
    """Inputs (uint8 N x H x W x 3, RGB) and the float32 N x D outputs of the source network for each picture alone."""

    images_NHWC: NDArray[np.uint8]
    outputs: Outputs


def golden_images(recipe: Recipe) -> NDArray[np.uint8]:
    """GOLDEN_COUNT different pictures: a colour ramp, coarse blocks, noise, and a dark one with little contrast."""
    height, width = recipe.height, recipe.width
    generator = np.random.default_rng(0)
    ys, xs = np.meshgrid(np.linspace(0, 255, height), np.linspace(0, 255, width), indexing="ij")
    palette = generator.integers(0, 256, (8, 8, 3))
    blocks = palette[(ys / 32).astype(int), (xs / 32).astype(int)]
    pictures = (
        np.stack([xs, ys, 255 - xs], axis=-1),
        blocks,
        generator.integers(0, 256, (height, width, 3)),
        generator.integers(20, 60, (height, width, 3)),
    )
    assert len(pictures) == GOLDEN_COUNT
    return np.stack(pictures).astype(np.uint8)


def write_golden(path: Path, golden: Golden) -> None:
    """Publish golden.npz: `images` and one array per output."""
    with publishing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, images=golden.images_NHWC, **golden.outputs)  # type: ignore[arg-type]


def read_golden(path: Path) -> Golden:
    """Read golden.npz. Raises DamagedError if it is missing or damaged."""
    try:
        with open_regular(path, most_bytes=ARRAYS_BYTES) as file:
            arrays = load_arrays(file)
        images = arrays.pop("images")
        if not all(isinstance(values, np.ndarray) and values.ndim for values in (images, *arrays.values())):
            raise ValueError("not all of its entries are arrays")  # numpy returns the bytes of an entry without a header
        if images.dtype != np.uint8 or images.ndim != 4 or {*map(len, arrays.values())} - {len(images)}:
            raise ValueError("its arrays are not pictures with one row each")
        return Golden(images, arrays)
    except BROKEN_ARRAYS as error:
        raise DamagedError(f"{path} is missing or damaged ({first_line(error)})") from None


def load_arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file by name, or that of an npy file under the empty name.

    Raises ValueError if they are larger than ARRAYS_BYTES, which a small file may be once it is unpacked, and BROKEN_ARRAYS.
    """
    is_archive = file.read(2) == b"PK"
    file.seek(0)
    if is_archive:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > ARRAYS_BYTES:
            raise ValueError(f"its arrays have {size:,} bytes; {ARRAYS_BYTES:,} are supported")
    file.seek(0)
    loaded = np.load(file)
    if isinstance(loaded, np.ndarray):
        return {"": loaded}
    with loaded:
        return dict(loaded)


def network_input(images_NHWC: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.float32]:
    """RGB pictures as the network takes them: float32 N x 3 x H x W, scaled, normalised, in the recipe's channel order."""
    low, high = recipe.value_range
    values = images_NHWC.astype(np.float64) / 255 * (high - low) + low
    if recipe.channels == "BGR":
        values = values[..., ::-1]
    normalised = (values - np.asarray(recipe.mean)) / np.asarray(recipe.std)
    return np.ascontiguousarray(normalised.transpose(0, 3, 1, 2), dtype=np.float32)


def cpu_session(graph: str | bytes) -> Any:
    """A session on the CPU provider for checks. Raises onnxruntime's own errors, which share no base class."""
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))  # the default pins threads to CPUs that we may not own
    options.log_severity_level = 4  # errors are raised, and so need no log line
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def open_session(graph: Path) -> Any:
    """A session on the CPU provider. Raises RunError if onnxruntime cannot load the graph."""
    try:
        return cpu_session(os.path.realpath(graph))
    except Exception as error:  # see cpu_session
        raise RunError(f"{graph.name}: onnxruntime cannot load the graph: {runtime_reason(error)}") from error


def check_graph(
    graph: Path, name: str, batch_size: int, golden: Golden, recipe: Recipe, tolerance: float = PARITY_TOLERANCES["fp32"]
) -> GraphSidecar:
    """Check the graph at `graph` (published later as `name`) and return its sidecar.

    `batch_size` 0 is the dynamic graph; it is run at batch 1 and at one more than there are golden pictures. The graph
    takes uint8 pictures or float32 network inputs. Raises RunError if a first dimension is not the batch, if rows of a batch
    change each other, or if outputs differ from those of the source by more than `tolerance`.
    """
    session = open_session(graph)
    shapes = _declared_shapes(session, name, batch_size)
    feed = golden.images_NHWC if session.get_inputs()[0].type == "tensor(uint8)" else network_input(golden.images_NHWC, recipe)
    parity: dict[str, dict[str, float]] = {}
    for batch in [batch_size] if batch_size else [1, len(feed) + 1]:
        found = _independent_rows(session, name, feed, batch, recipe, one_real=tolerance > PARITY_TOLERANCES["fp32"])
        for output, values in _parity(name, found, golden.outputs, tolerance).items():
            worst = max(values["max_abs_difference"], parity.get(output, values)["max_abs_difference"])
            parity[output] = {**values, "max_abs_difference": worst}
    inputs = {session.get_inputs()[0].name: shapes.pop(session.get_inputs()[0].name)}
    return GraphSidecar(sha256=file_sha256(graph), batch_size=batch_size, inputs=inputs, outputs=shapes, parity=parity)


def _declared_shapes(session: Any, name: str, batch_size: int) -> dict[str, list[int | str]]:
    """Shapes of the one input and of all outputs; each must be the batch, then known sizes."""
    assert len(session.get_inputs()) == 1, "one input"
    shapes = {}
    for kind, tensor in [("input", session.get_inputs()[0]), *(("output", output) for output in session.get_outputs())]:
        shape = list(tensor.shape)
        if not shape or shape[0] != (batch_size or BATCH) or not all(isinstance(size, int) for size in shape[1:]):
            wanted = batch_size or "free"
            raise RunError(
                f"{name}: {kind} {tensor.name} has shape {shape}, but its first dimension, and only that, must be the batch "
                f"({wanted}): the network fixes or mixes its batch inside and cannot be exported"
            )
        shapes[tensor.name] = shape
    return shapes


def _independent_rows(session: Any, name: str, feed: NDArray[Any], batch: int, recipe: Recipe, *, one_real: bool) -> Outputs:
    """The outputs for `feed`, run twice in batches whose other rows are filled with different padding.

    With `one_real` a batch has one real row. Several real rows can hide that padding changes a range taken over the whole
    batch; parity with each picture alone shows that too, but only where its tolerance is strict.
    Raises RunError if the number of output rows is not the batch, or if the padding changes a real row.
    """
    shape = (1, recipe.height, recipe.width, 3)
    # The two paddings differ in mean, extremes and contrast, through which rows usually change each other.
    black: NDArray[Any] = np.zeros(shape, np.uint8)
    bright: NDArray[Any] = np.random.default_rng(1).integers(200, 256, shape, np.uint8)
    if feed.dtype != np.uint8:
        black, bright = network_input(black, recipe), network_input(bright, recipe)
    rows_per_batch = 1 if one_real else min(len(feed), max(1, batch - 1))
    first = _run(session, name, feed, batch, black, rows_per_batch)
    second = _run(session, name, feed, batch, bright, rows_per_batch)
    for output, rows in first.items():
        difference = float(np.max(np.abs(rows - second[output]), initial=0))
        if not difference <= PADDING_TOLERANCE * float(np.max(np.abs(rows), initial=0)):
            raise RunError(
                f"{name}: other rows of the batch change the {output} of a picture (by {difference:.3g}), so padding the last "
                "batch would change results: the network mixes its batch inside and cannot be exported"
            )
    return first


def _run(session: Any, name: str, feed: NDArray[Any], batch: int, padding: NDArray[Any], rows_per_batch: int) -> Outputs:
    """Run `feed` in batches of `batch`: `rows_per_batch` real rows, spread over the batch, and `padding` in all others."""
    names = [output.name for output in session.get_outputs()]

    def run_batch(images: NDArray[Any]) -> Outputs:
        try:
            results = session.run(names, {session.get_inputs()[0].name: images})
        except Exception as error:  # onnxruntime's errors share no base class
            raise RunError(f"{name}: the graph does not run at batch {batch}: {first_line(error)}") from error
        for output, values in zip(session.get_outputs(), results, strict=True):
            if len(values) != batch:
                raise RunError(
                    f"{name}: {output.name} has {len(values)} rows for a batch of {batch}: the network fixes its batch inside"
                )
            if [*values.shape[1:]] != [*output.shape[1:]]:
                raise RunError(f"{name}: the size of {output.name} depends on the picture: rows of {list(values.shape[1:])}, "
                               f"not of {list(output.shape[1:])}")  # fmt: skip
        return dict(zip(names, results, strict=True))

    return FixedBatch(run_batch, batch, padding=padding, per_run=rows_per_batch, spread=True).run(feed)


def _parity(name: str, found: Mapping[str, NDArray[Any]], expected: Outputs, tolerance: float) -> dict[str, dict[str, float]]:
    """Largest difference and largest value per output. Raises RunError if one is beyond the tolerance or not finite."""
    parity = {}
    for output, source in expected.items():
        if found[output].shape != source.shape:
            raise RunError(f"{name}: {output} has rows of {found[output].shape[1:]}, the source network {source.shape[1:]}")
        difference, largest, allowed = worst_difference(found[output], source, tolerance)
        if not difference <= allowed:
            raise RunError(
                f"{name}: {output} differs from the source network by {difference:.3g} where its largest value is {largest:.3g}"
                f" (allowed {allowed:.3g}): the export is wrong and was not kept"
            )
        parity[output] = {
            "max_abs_difference": float(np.max(np.abs(found[output] - source), initial=0)),
            "max_abs_value": float(np.max(np.abs(source), initial=0)),
        }
    return parity


def worst_difference(found: NDArray[Any], source: NDArray[Any], tolerance: float) -> tuple[float, float, float]:
    """The largest difference of two arrays N x ... x C, the largest value of `source` there, and the difference allowed.

    `tolerance` is relative to the largest value, and ROUNDING is always allowed. Where the channels of the last axis differ in
    scale, as boxes in pixels beside scores do, each is judged for itself, and the one that is furthest off is returned.
    """
    differences = np.abs(found.astype(np.float64) - source.astype(np.float64))
    values = np.abs(source.astype(np.float64))
    largest = float(np.max(values, initial=0))
    per_channel = np.max(values.reshape(-1, values.shape[-1]), axis=0, initial=0) if values.ndim > 1 else np.array([largest])
    scales = np.full_like(per_channel, largest)
    if _mixes_scales(values, per_channel):
        scales = np.maximum(per_channel, largest * PADDING_TOLERANCE / tolerance)
    allowed = np.maximum(tolerance * scales, ROUNDING)
    worst = np.max(differences.reshape(-1, len(scales)), axis=0, initial=0)
    place = int(np.argmax(worst / allowed))  # a NaN counts as the largest
    return float(worst[place]), float(per_channel[place]), float(allowed[place])


def _mixes_scales(values: NDArray[Any], per_channel: NDArray[Any]) -> bool:
    """True if channels of an output differ in scale; many values in a flat row are of one kind: class scores, an embedding."""
    if not (values.ndim > 2 or 1 < len(per_channel) <= _MOST_KINDS):
        return False
    return bool(per_channel[per_channel > 0].min(initial=np.inf) * _SCALES_APART < per_channel.max())
