"""Files of CIFAR in binary form: records of one or two label bytes and 3072 bytes of a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bulkinfer.datasets.types import open_regular
from bulkinfer.errors import UsageError
from bulkinfer.types import Array

_PICTURE_BYTES = 3072


def read_rows(path: Path, label_bytes: int) -> tuple[Array, Array]:
    """Pictures (N x 3072, uint8, planar) and int64 labels, which are the last of `label_bytes` bytes before each picture.

    Raises UsageError where the file does not consist of whole records.
    """
    record_bytes = label_bytes + _PICTURE_BYTES
    with open_regular(path) as file:
        data = np.frombuffer(file.read(), np.uint8)
    if not len(data):
        raise UsageError(f"{path} is empty: fetch it again")
    count, rest = divmod(len(data), record_bytes)
    if rest:
        raise UsageError(
            f"{path} is damaged: after {count:,} records of {record_bytes:,} bytes, {rest:,} bytes are left over at byte "
            f"{count * record_bytes:,}"
        )
    records = data.reshape(count, record_bytes)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)


def read_names(path: Path) -> tuple[str, ...]:
    """The names of the classes, one on a line."""
    with open_regular(path) as file:
        data = file.read()
    try:
        return tuple(line.strip() for line in data.decode().splitlines() if line.strip())
    except UnicodeDecodeError:
        raise UsageError(f"{path} is damaged: it is no text") from None
