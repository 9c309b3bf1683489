"""Golden inputs and outputs that the user gives along with a foreign graph, to check graph and recipe with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.errors import RunError, UsageError, first_line
from bulkinfer.export.onnx_import.graph import Foreign, precision, run_each
from bulkinfer.export.onnx_import.rewrite import GraphOutput
from bulkinfer.export.onnx_import.user_files import regular_file
from bulkinfer.files.guarded import open_regular
from bulkinfer.model.graph_checks import ARRAYS_BYTES, BROKEN_ARRAYS, load_arrays, worst_difference

# Relative to the largest value. The user's outputs may come from another version of the runtime or another processor, where a
# value may be rounded to the next number of half precision or 8 bits.
TOLERANCES = {"fp32": 1e-3, "fp16": 1e-2, "int8": 2e-2}
INPUT_SUFFIX, OUTPUT_SUFFIX = "_input.npy", "_output.npy"


@dataclass(frozen=True)
class UserGolden:
    """One golden file or pair of files: its arrays by name; those of a pair are called "input" and "output"."""

    name: str
    arrays: dict[str, NDArray[Any]]


def read_user_golden(folder: Path) -> list[UserGolden]:
    """All golden files of a folder. Raises UsageError if there is none, or if one cannot be read or has no partner."""
    if not folder.is_dir():
        raise UsageError(f"--golden: {folder} is no folder")
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npz":
            found.append(UserGolden(path.name, _arrays(path)))
        elif path.name.endswith(INPUT_SUFFIX):
            partner = path.with_name(path.name.removesuffix(INPUT_SUFFIX) + OUTPUT_SUFFIX)
            if not partner.is_file():
                raise UsageError(f"--golden: {path} has no {partner.name} beside it")
            found.append(UserGolden(path.name, {"input": _arrays(path)[""], "output": _arrays(partner)[""]}))
    if not found:
        raise UsageError(f"--golden: {folder} holds neither *.npz nor pairs of *{INPUT_SUFFIX} and *{OUTPUT_SUFFIX}")
    return found


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; the array of an npy file has the empty name."""
    regular_file(path, "--golden")
    try:
        with open_regular(path, most_bytes=ARRAYS_BYTES, error=UsageError) as file:
            return load_arrays(file)
    except BROKEN_ARRAYS as error:
        raise UsageError(f"--golden: {path} is no file of arrays that can be read ({first_line(error)})") from None


def check_user_golden(foreign: Foreign, case: UserGolden, outputs: list[GraphOutput], classified: str) -> str:
    """Compare the user's outputs with those of the graph; returns a sentence for the log.

    Raises UsageError for arrays that do not fit the graph, RunError for outputs that differ.
    """
    arrays, picture = dict(case.arrays), foreign.picture
    given = next((name for name in (picture.name, "input", "images") if name in arrays), None)
    if given is None:
        raise UsageError(f"--golden {case.name}: it has no input: an array called {picture.name}, input or images")
    images = arrays.pop(given)
    shape = (foreign.recipe.height, foreign.recipe.width, 3)
    if images.dtype == np.uint8 and images.shape[1:] == shape:
        images = foreign.feed(images)
    if images.dtype != picture.dtype or images.shape[1:] != picture.picture_shape(foreign.recipe):
        raise UsageError(f"--golden {case.name}: its input is {images.dtype} {list(images.shape)}; prepared pictures (uint8, "
                         f"N x {' x '.join(map(str, shape))}, RGB) or what the graph takes is needed")  # fmt: skip
    if not len(images):
        raise UsageError(f"--golden {case.name}: its input holds no pictures")
    if odd := next((name for name, values in arrays.items() if values.dtype.kind not in "fiub"), None):
        raise UsageError(f"--golden {case.name}: {odd} is {arrays[odd].dtype}: real numbers are needed")
    sources = {output.name: output.source for output in outputs} | {output.source: output.source for output in outputs}
    sources |= {"output": classified or outputs[0].source} if "output" not in sources else {}
    if not arrays or (unknown := sorted(set(arrays) - set(sources))):
        names = f"unknown outputs {', '.join(unknown)}" if arrays else "no outputs"
        raise UsageError(
            f"--golden {case.name}: it has {names}; the graph has {', '.join(output.source for output in outputs)}"
        )
    found = run_each(foreign.session, images, picture.batch, [sources[name] for name in arrays])
    agreeing = []
    for name, expected in arrays.items():
        values = found[sources[name]].astype(np.float64)
        if expected.size != values.size:
            raise UsageError(f"--golden {case.name}: {name} is {list(expected.shape)}, the graph gives {list(values.shape)}")
        difference, _, allowed = worst_difference(values, expected.reshape(values.shape), TOLERANCES[precision(foreign)])
        if not difference <= allowed:
            raise RunError(f"--golden {case.name}: {name} differs by {difference:.3g} from the output of the graph (allowed "
                           f"{allowed:.3g}): it was made with another recipe or graph")  # fmt: skip
        agreeing.append(f"{name} within {difference:.2g} (allowed {allowed:.2g})")
    return f"agrees: {', '.join(agreeing)}"
