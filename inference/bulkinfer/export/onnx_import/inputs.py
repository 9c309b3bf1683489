"""The inputs of a foreign graph: which one takes the pictures, and in which type and layout.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import TensorProto

from bulkinfer.errors import UsageError
from bulkinfer.model.recipe import Recipe

DTYPES: dict[int, str] = {TensorProto.UINT8: "uint8", TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16"}
LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True, slots=True)
class PictureInput:
    """The input that takes the pictures: `dtype` is uint8, float32 or float16, `batch` 0 means free.

    `layouts` are those that its shape allows.
    """

    name: str
    dtype: str
    layouts: tuple[str, ...]
    batch: int
    shape: tuple[int | str, ...]

    @property
    def layout(self) -> str:
        """NCHW or NHWC, once the layout is settled."""
        (layout,) = self.layouts
        return layout

    def picture_shape(self, recipe: Recipe) -> tuple[int, ...]:
        """The dimensions after the batch."""
        if self.layout == "NCHW":
            return (3, recipe.height, recipe.width)
        return (recipe.height, recipe.width, 3)


def find_input(model: onnx.ModelProto, name: str) -> PictureInput:
    """The one input that is to be fed; weights that are listed as inputs too are taken off that list.

    Raises UsageError if there are more, or if it is none for pictures.
    """
    graph = model.graph
    real = real_inputs(model)
    del graph.input[:]
    graph.input.extend(real)
    if len(real) != 1:
        listed = ", ".join(f"{value.name} {shown(value)}" for value in real) or "none"
        raise UsageError(f"--onnx: {name} needs {len(real)} inputs ({listed}); all but the pictures must have a default value "
                         "(an initializer of the same name)")  # fmt: skip
    (value,) = real
    kind, shape = value.type.tensor_type.elem_type, _shape(value)
    if not value.type.HasField("tensor_type") or kind not in DTYPES:
        raise UsageError(f"--onnx: {name} takes {shown(value)} as {value.name}; {', '.join(DTYPES.values())} can be fed")
    layouts = _layouts(shape)
    if not layouts:
        raise UsageError(f"--onnx: {name} takes {shown(value)} as {value.name}, which are no pictures of 3 channels: "
                         "N x 3 x H x W or N x H x W x 3 is needed")  # fmt: skip
    return PictureInput(value.name, DTYPES[kind], layouts, shape[0] if isinstance(shape[0], int) else 0, shape)


def real_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that must be fed: those that are no weights."""
    graph = model.graph
    filled = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in filled]


def are_pictures(value: onnx.ValueInfoProto) -> bool:
    """True if pictures of three channels fit an input."""
    return value.type.tensor_type.elem_type in DTYPES and bool(_layouts(_shape(value)))


def _layouts(shape: tuple[int | str, ...]) -> tuple[str, ...]:
    """The layouts that a shape allows: those that say 3 channels, else those that leave the channels open."""
    layouts = tuple(layout for layout in LAYOUTS if len(shape) == 4 and shape[layout.index("C")] == 3)
    return layouts or tuple(layout for layout in LAYOUTS if len(shape) == 4 and isinstance(shape[layout.index("C")], str))


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    """Sizes where they are known, names (or ?) where not."""
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in dims)


def shown(value: onnx.ValueInfoProto) -> str:
    """Type and shape of an input, for messages."""
    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    kind = {"float": "float32", "double": "float64", "undefined": "no tensor"}.get(kind, kind)
    return f"{kind} [{', '.join(map(str, _shape(value)))}]"
