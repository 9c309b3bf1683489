"""Bulk offline inference over ONNX models: one accounted row per picture.

    import bulkinfer

    bulkinfer.get_model("efficientnet_lite0")
    with bulkinfer.open_model("models/efficientnet_lite0") as predictor:
        rows = predictor.predict(["a.jpg", "b.jpg"])  # a pyarrow.Table, one row per picture

The names in `__all__` are the public API. Everything else is private and may change with any release. Each name is loaded when
it is first used: `import bulkinfer` itself loads the errors and nothing else.

What a call reports goes to `logging.getLogger("bulkinfer")`. What goes wrong is a BulkinferError: UsageError for a wrong
argument, before anything is started; RunError for work that cannot be done or finished; RecordError for one picture, which
becomes an error row and is not raised by any function here.
"""

from __future__ import annotations

import sys
from types import ModuleType

from bulkinfer.errors import BulkinferError, RecordError, RunError, UsageError

# A command imports this before it can handle a signal, so it must be quick: typing alone would take longer than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing

    from bulkinfer.config import LaunchConfig
    from bulkinfer.export.get_model import get_model
    from bulkinfer.launch.launcher import launch
    from bulkinfer.launch.open_model import open_model
    from bulkinfer.records.dataset import open_dataset
    from bulkinfer.records.partitions.make_partitions import partition_dataset
    from bulkinfer.results.reader import read_results
    from bulkinfer.results.verify import verify
    from bulkinfer.train.launch import train
    from bulkinfer.train.options import TrainConfig

__version__ = "0.2.0"

__all__ = [
    "BulkinferError",
    "LaunchConfig",
    "RecordError",
    "RunError",
    "TrainConfig",
    "UsageError",
    "__version__",
    "get_model",
    "launch",
    "open_dataset",
    "open_model",
    "partition_dataset",
    "read_results",
    "train",
    "verify",
]

_LAZY = {  # name -> the module that it is loaded from
    "LaunchConfig": "bulkinfer.config",
    "TrainConfig": "bulkinfer.train.options",
    "get_model": "bulkinfer.export.get_model",
    "launch": "bulkinfer.launch.launcher",
    "open_dataset": "bulkinfer.records.dataset",
    "open_model": "bulkinfer.launch.open_model",
    "partition_dataset": "bulkinfer.records.partitions.make_partitions",
    "read_results": "bulkinfer.results.reader",
    "train": "bulkinfer.train.launch",
    "verify": "bulkinfer.results.verify",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps `launch` and `train` the functions: the import system would put the rooms of the same names in their places."""

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
