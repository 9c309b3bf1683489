"""What travels along the main path: records in, batches through the network, rows out.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"  # for annotations; a string, because importing this module loads no numpy


def key_text(key: bytes) -> str:
    r"""A key as text: UTF-8 where it is valid, each other byte as \xNN (the raw bytes are kept beside it)."""
    return key.decode("utf-8", "backslashreplace")


def printable(name: bytes) -> str:
    """A key or path for messages: as `key_text`, with line breaks and other control characters escaped."""
    text = key_text(name)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a record that ends every process gets in place of being touched again: its stage (of errors.STAGES) and message."""

    stage: str
    message: str


@dataclass(frozen=True, slots=True)
class Record:
    """One undecoded picture: its number within the partition, its key and where its bytes are.

    `key` is the path relative to the dataset root, as the file system's bytes. `label` and `category_ids` are None where
    the dataset has none. `fault` is given for a picture that ends every process that touches it: it must be left alone.
    """

    number: int
    key: bytes
    path: bytes
    label: int | None = None
    category_ids: tuple[int, ...] | None = None
    fault: Fault | None = None

    @property
    def name(self) -> str:
        """For messages: printable, no line breaks."""
        return printable(self.key)


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """The records start..end (exclusive) of one partition: the unit of hand-over, log line, publishing and resume."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decoder saw: the real format, number of frames, size in pixels after orientation, flags; bytes of the file."""

    format: str
    frames: int
    width: int
    height: int
    flags: tuple[str, ...] = ()
    size_bytes: int | None = None


@dataclass(slots=True)
class Batch:
    """A preallocated block of prepared pictures, recycled for the whole job.

    `images_NHWC` is uint8 RGB. The first `count` slots belong to records at `offset`.. of the step whose `rows` they fill;
    the slots of failed records and of padding hold zeros. `errors` maps a slot to the stage and message of its failure: no
    exception, whose traceback would keep the picture in memory.
    """

    images_NHWC: Array
    records: list[Record | None]
    facts: list[Facts | None]
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)
    rows: Any = None
    offset: int = 0
    count: int = 0
    waiting: int = 0  # records still being prepared
