"""payloads.py: what is sent: random tensors or JPEGs, or the pictures of a folder with their labels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.serve.client.payloads import payloads_for
from bulkinfer.serve.client.server_facts import ServerFacts
from bulkinfer.serve.messages import TensorFacts
from bulkinfer.serve.options import RequestConfig
from PIL import Image

from tests import pictures

FACTS = ServerFacts([TensorFacts("images", "UINT8", (-1, 4, 5, 3)), TensorFacts("pictures", "BYTES", (-1,))], [])


def test_random_tensors_have_the_form_that_the_server_names() -> None:
    found = payloads_for(RequestConfig(), FACTS)
    tensor = found.tensor(14, 4)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("images", "UINT8", (4, 4, 5, 3))
    values = np.asarray(tensor.values)
    assert np.array_equal(values[2], np.asarray(found.tensor(0, 1).values)[0]), "after the last one the first comes again"
    assert not np.array_equal(values[0], values[1])
    assert np.array_equal(values, payloads_for(RequestConfig(), FACTS).tensor(14, 4).values), "by the seed"
    assert not np.array_equal(values, payloads_for(RequestConfig(seed=1), FACTS).tensor(14, 4).values)


def test_random_tensors_of_floats() -> None:
    facts = ServerFacts([TensorFacts("x", "FP32", (-1, 3, 4, 5))], [])
    tensor = payloads_for(RequestConfig(), facts).tensor(0, 2)
    assert (tensor.name, tensor.datatype, np.asarray(tensor.values).dtype) == ("x", "FP32", np.float32)


def test_random_pictures_are_jpegs() -> None:
    tensor = payloads_for(RequestConfig(send="pictures"), FACTS).tensor(0, 2)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("pictures", "BYTES", (2,))
    first, second = (Image.open(io.BytesIO(data)) for data in tensor.values)
    assert (first.format, first.size) == ("JPEG", (640, 480))
    assert not np.array_equal(np.asarray(first), np.asarray(second))


def test_pictures_of_a_folder_are_sent_as_they_are_with_their_labels(tmp_path: Path) -> None:
    files = {f"{name}/{n}.jpg": pictures.jpeg(seed=n) for name in ("cat", "dog") for n in range(2)}
    pictures.write_files(tmp_path, files)
    found = payloads_for(RequestConfig(data_dir=str(tmp_path), labels="folder"), FACTS)
    assert found.values == [files[key] for key in sorted(files)]
    assert found.labels == ["cat", "cat", "dog", "dog"]
    assert found.source == f"4 of the 4 pictures in {tmp_path}"
    assert payloads_for(RequestConfig(data_dir=str(tmp_path)), FACTS).labels == []


def test_what_the_server_does_not_take(tmp_path: Path) -> None:
    only_tensors = ServerFacts(FACTS.inputs[:1], [])
    with pytest.raises(RunError, match=r"takes no encoded pictures; its inputs are images \(UINT8\)"):
        payloads_for(RequestConfig(send="pictures"), only_tensors)
    pictures.write_files(tmp_path, {"a.jpg": pictures.jpeg()})
    (tmp_path / "labels.csv").write_text("b.jpg,cat\n")
    with pytest.raises(UsageError):
        payloads_for(RequestConfig(data_dir=str(tmp_path), labels=str(tmp_path / "labels.csv")), FACTS)
