"""What is sent: pictures of a folder, or random ones, as inputs that the server takes.

Shape letters: N pictures of a request.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from bulkinfer.errors import RecordError, RunError, UsageError
from bulkinfer.records.data_dir import resolve_data_dir
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.read_place import read_place
from bulkinfer.serve.client.server_facts import ServerFacts
from bulkinfer.serve.messages import TensorFacts
from bulkinfer.serve.options import PICTURES, RequestConfig
from bulkinfer.serve.tensors import BYTES, DTYPES, Tensor

COMMAND = "bulkinfer request"
_MOST = 500  # different pictures; more are sent again and again
_MOST_BYTES = 1 << 28  # of all of them
_RANDOM = 16  # different random pictures
_JPEG_SIZE = (640, 480)  # of random ones, in pixels


@dataclass(frozen=True)
class Payloads:
    """Different inputs of one picture each, and the label of each where it is known; `source` says in words what they are."""

    name: str
    datatype: str
    values: list[np.ndarray] | list[bytes]
    labels: list[str]
    source: str

    def tensor(self, first: int, count: int) -> Tensor:
        """The input of a request with pictures first, first + 1, ..., again from the beginning after the last one."""
        chosen = [self.values[index] for index in self.indices(first, count)]
        if self.datatype == BYTES:
            return Tensor(self.name, BYTES, (count,), [value for value in chosen if isinstance(value, bytes)])
        found = [value[np.newaxis] for value in chosen if not isinstance(value, bytes)]
        images = found[0] if count == 1 else np.concatenate(found)  # of one picture no copy
        return Tensor(self.name, self.datatype, images.shape, images)

    def indices(self, first: int, count: int) -> list[int]:
        """Which of `values` these pictures are."""
        return [index % len(self.values) for index in range(first, first + count)]


def payloads_for(config: RequestConfig, facts: ServerFacts) -> Payloads:
    """What `config` asks to send, in an input that the server has. Raises UsageError or RunError if there is none."""
    if config.data_dir:
        return _of_folder(config, _input(facts, is_encoded=True))
    random = np.random.default_rng(config.seed)
    if config.send == PICTURES:
        width, height = _JPEG_SIZE
        wanted = _input(facts, is_encoded=True)
        files = [random_jpeg(random, width, height) for _ in range(_RANDOM)]
        return Payloads(wanted.name, BYTES, files, [], f"{_RANDOM} random JPEGs of {width} x {height}")
    wanted = _input(facts, is_encoded=False)
    shape = wanted.shape[1:]
    if wanted.datatype == "UINT8":
        images = [random.integers(0, 256, shape, np.uint8) for _ in range(_RANDOM)]
    else:
        images = [random.standard_normal(shape).astype(DTYPES[wanted.datatype]) for _ in range(_RANDOM)]
    shown = " x ".join(map(str, shape))
    return Payloads(wanted.name, wanted.datatype, images, [], f"{_RANDOM} random tensors, {wanted.datatype} {shown}")


def _input(facts: ServerFacts, *, is_encoded: bool) -> TensorFacts:
    found = [each for each in facts.inputs if (each.datatype == BYTES) == is_encoded]
    if not found:
        there = ", ".join(f"{each.name} ({each.datatype})" for each in facts.inputs)
        kind = "encoded pictures" if is_encoded else "tensors"
        raise RunError(f"the network takes no {kind}; its inputs are {there}")
    return found[0]


def random_jpeg(random: np.random.Generator, width: int, height: int) -> bytes:
    """A picture of smooth random colours, which has about the size of a photograph as a file."""
    coarse = random.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def _of_folder(config: RequestConfig, wanted: TensorFacts) -> Payloads:
    """The first pictures of --data_dir that can be read."""
    dataset = open_dataset(resolve_data_dir(config.data_dir, COMMAND), labels=config.labels)
    files: list[bytes] = []
    labels: list[str] = []
    size_bytes = 0
    for partition in dataset.partitions:
        for record in partition.manifest.records(0, min(partition.manifest.num_records, _MOST)):
            if len(files) == _MOST or size_bytes > _MOST_BYTES:
                break
            try:
                data = read_place(record.place, _MOST_BYTES)
            except RecordError as error:
                raise RunError(f"{record.name} cannot be sent: {error}: remove it, or give other pictures") from None
            files.append(data)
            size_bytes += len(data)
            labels.append(_label(record.label, dataset.label_classes))
    if not any(labels) and config.labels:
        raise UsageError(f"--labels {config.labels} names the class of no picture that is sent")
    source = f"{len(files)} of the {dataset.num_records} {dataset.source}"
    return Payloads(wanted.name, BYTES, files, labels if any(labels) else [], source)


def _label(number: int | None, names: Mapping[int, str]) -> str:
    return "" if number is None else names.get(number, str(number))
