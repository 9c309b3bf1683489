"""size_limits.py: pipes, devices and files that unpack to much more are refused before they take time or memory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import import file as file_module
from bulkinfer.export.onnx_import.file import read_model
from bulkinfer.export.onnx_import.size_limits import is_whole
from bulkinfer.model.graph_checks import ARRAYS_BYTES
from onnx import TensorProto, helper

from tests.adoption import Home
from tests.foreign_graphs import foreign_graph, recipe_file, save
from tests.forms import only_first


def sparse_file(path: Path, head: bytes, size: int) -> Path:
    """A file of `size` bytes that takes no place on disk."""
    path.write_bytes(head)
    os.truncate(path, size)
    return path


def varint(value: int) -> bytes:
    return bytes([value & 127 | (128 if value > 127 else 0)]) + (varint(value >> 7) if value > 127 else b"")


def fifo(folder: Path) -> list[str]:
    os.mkfifo(folder / "m.onnx")
    return []


def device(folder: Path) -> list[str]:
    (folder / "m.onnx").symlink_to("/dev/zero")
    return []


def hollow(folder: Path) -> list[str]:
    """Nothing but zeros behind the beginning of a graph."""
    sparse_file(folder / "m.onnx", b"\x08\x08" + b"\x3a" + varint(1_900_000_000 - 8), 1_900_000_000)
    return []


def large(folder: Path) -> list[str]:
    sparse_file(folder / "m.onnx", b"\x08\x08", 1 << 40)
    return []


def weights(folder: Path, make: Any) -> list[str]:
    save(foreign_graph(), folder, save_as_external_data=True, location="w.data", size_threshold=0)
    (folder / "w.data").unlink()
    make(folder / "w.data")
    return []


def weights_fifo(folder: Path) -> list[str]:
    return weights(folder, os.mkfifo)


def weights_device(folder: Path) -> list[str]:
    return weights(folder, lambda path: path.symlink_to("/dev/zero"))


def weights_large(folder: Path) -> list[str]:
    """The graph asks for all of a file of a terabyte."""
    weights(folder, lambda path: sparse_file(path, b"", 1 << 40))
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in [entry for entry in tensor.external_data if entry.key == "length"]:
            entry.value = str(1 << 40)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return []


def dense(folder: Path) -> list[str]:
    """Sparse weights of three numbers and 40 GB."""
    model = foreign_graph(nodes=[helper.make_node("ReduceMax", ["s"], ["z"], keepdims=0)], outputs={"z": None})
    values = helper.make_tensor("s", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    places = helper.make_tensor("places", TensorProto.INT64, [3], [1, 2, 3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [10_000_000_000]))
    save(model, folder)
    return []


def constant(folder: Path) -> list[str]:
    """A constant of 40 GB from a shape of two numbers."""
    nodes = [
        helper.make_node("ConstantOfShape", ["sizes"], ["much"]),
        helper.make_node("ReduceMax", ["much"], ["z"], keepdims=0),
    ]
    save(foreign_graph(nodes=nodes, outputs={"z": None}, constants={"sizes": np.array([100_000, 100_000])}), folder)
    return []


def expanded(folder: Path) -> list[str]:
    """The picture's mean, ten thousand million times."""
    nodes = [
        helper.make_node("Expand", ["mean", "sizes"], ["much"]),
        helper.make_node("ReduceMax", ["much"], ["z"], axes=[0, 1]),
    ]
    sizes = np.array([100_000, 100_000, 1, 3])
    save(foreign_graph(1, nodes=nodes, outputs={"z": None}, constants={"sizes": sizes}), folder)
    return []


def golden(folder: Path, make: Any) -> list[str]:
    save(foreign_graph(), folder)
    (folder / "golden").mkdir()
    make(folder / "golden" / "a.npz")
    return ["--golden", "golden", "--scores", "logits"]


def golden_fifo(folder: Path) -> list[str]:
    return golden(folder, os.mkfifo)


def golden_bomb(folder: Path) -> list[str]:
    """Three gigabytes of zeros in three megabytes."""

    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("x.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (3 << 30,)})
            for _ in range(ARRAYS_BYTES // (1 << 24) + 1):
                member.write(bytes(1 << 24))

    return golden(folder, make)


SENTENCES = {
    fifo: "is a pipe or a device",
    device: "is a pipe or a device",
    hollow: "is only the beginning of an ONNX graph, or damaged",
    large: "is only the beginning of an ONNX graph, or damaged",
    weights_fifo: "keeps its weights in w.data, which is not beside it",
    weights_device: "keeps its weights in w.data, which is not beside it",
    weights_large: "which no graph in memory may be",
    dense: "the sparse weights s have 40,000,000,000 bytes once dense",
    constant: "makes much, a tensor of 40,000,000,000 bytes",
    expanded: "makes much, a tensor of 120,000,000,000 bytes",
    golden_fifo: "is a pipe or a device",
    golden_bomb: "is no file of arrays that can be read (its arrays have ",
}


@pytest.mark.parametrize("make", [*SENTENCES], ids=lambda make: make.__name__)
def test_c48_what_would_take_all_memory_or_never_end_is_refused(make: Any, home: Home) -> None:
    """In this process; the next test measures."""
    words = make(home.folder)
    flags = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    if "golden" in flags:
        flags["golden"] = str(home.folder / "golden")
    with pytest.raises(UsageError) as caught:
        home.adopt(**flags)
    assert SENTENCES[make] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", only_first([*SENTENCES], 0), ids=lambda make: make.__name__)
def test_c48_it_takes_less_than_a_gigabyte_and_ten_seconds(make: Any, tmp_path: Path) -> None:
    """Seconds of the processor: what waits for ever uses none, and is ended after two minutes."""
    words = make(tmp_path)
    code = (
        "import sys, time; from bulkinfer.commands.get_model import main; code = main(sys.argv[1:]); "
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], time.process_time()); sys.exit(code)"
    )  # the kernel's ru_maxrss counts the process that started this one as well
    given = ["--onnx", "m.onnx", "--name", "net", "--recipe", str(recipe_file(tmp_path)), *words]
    done = subprocess.run(
        [sys.executable, "-c", code, *given], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert SENTENCES[make] in done.stderr
    memory_kb, cpu_s = done.stdout.split()[-2:]
    assert int(memory_kb) < 1_000_000
    assert float(cpu_s) < 10


@pytest.mark.parametrize("layout", ["inside", "beside"])
def test_c48_large_files_that_are_whole_are_read(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "_LARGE", 0)
    beside: dict[str, Any] = {"save_as_external_data": True, "location": "w", "size_threshold": 0}
    path = save(foreign_graph(num_classes=300), tmp_path, **(beside if layout == "beside" else {}))
    assert len(read_model(path)[0].graph.node) == 2
    data = path.read_bytes()
    for end in (len(data) - 1, len(data) // 2, 3):
        path.write_bytes(data[:end])
        with path.open("rb") as file:
            assert not is_whole(file, end)
        with pytest.raises(UsageError, match="is only the beginning of an ONNX graph, or damaged"):
            read_model(path)
