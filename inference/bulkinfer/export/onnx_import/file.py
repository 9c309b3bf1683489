"""The file of a graph that somebody else made, read whole with its external weights; other files are identified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import onnx
from onnx import TensorProto

from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import.size_limits import check_sparse, is_whole
from bulkinfer.export.onnx_import.user_files import read_bytes, regular_file
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.magic_bytes import HEAD_BYTES, identify

MOST_BYTES = onnx.checker.MAXIMUM_PROTOBUF - 2**20  # leaves room for the nodes that are added to the graph
_LARGE = 64 << 20  # bytes of a file that is looked at before it is read whole
_IR_VERSION_KEY = b"\x08"  # how a serialised ModelProto begins
_HELP = {
    "Git LFS pointer": "fetch the file itself with git lfs pull",
    "HTML page": "what was downloaded is a page about the file: download the file itself",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The files that a graph was read from: the graph, and its weights if they lie in files beside it.

    `weights_sha256` is the hash of the weights from `beside`, empty if there are none. `sha256` is that of all files one after
    the other, as `cat m.onnx m.data | sha256sum` prints it.
    """

    sha256: str
    weights_sha256: str
    beside: tuple[str, ...]


def read_model(path: Path) -> tuple[onnx.ModelProto, Origin]:
    """The graph of a file with all its weights in memory, and which files it came from.

    Links are followed. Raises UsageError saying which file is unfit, and why.
    """
    regular_file(path, "--onnx")
    size = path.stat().st_size
    if size > _LARGE:
        with open_regular(path, error=UsageError) as file:
            if not is_whole(file, size):
                file.seek(0)
                raise UsageError(f"--onnx: {path} ({size:,} bytes) {_what_instead(file.read(HEAD_BYTES), path.suffix)}")
    data = read_bytes(path, "--onnx")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError has another class in each of its implementations
        if type(error).__name__ != "DecodeError":
            raise
        model.Clear()
    graph = model.graph
    if not (graph.node and graph.output and (model.opset_import or model.ir_version < 3)):
        what = _what_instead(data, path.suffix)
        if model.opset_import and model.HasField("graph"):  # the opset stands behind the graph, so nothing is cut off
            what = f"holds a graph without {'outputs' if graph.node else 'operators'}, which cannot be run"
        raise UsageError(f"--onnx: {path} ({len(data):,} bytes) {what}")
    whole = hashlib.sha256(data)
    del data
    check_sparse(model, path.name)
    return model, _read_external(model, path, whole)


def _what_instead(data: bytes, suffix: str) -> str:
    if not data:
        return "is empty: make or download it again"
    if data[4:8] == b"ORTM":
        return "is in the ORT format, from which no graph can be taken: give the .onnx file that it was made of"
    found = identify(data[:HEAD_BYTES]).name
    if found in _HELP:
        article = "an" if found == "HTML page" else "a"
        return f"is {article} {found}, no ONNX graph: {_HELP[found]}"
    if found == "ZIP archive":
        is_torch = suffix.lower() in (".pt", ".pth", ".ckpt", ".bin")
        return f"is no ONNX graph ({found}): {'export it with torch.onnx.export first' if is_torch else 'unpack it first'}"
    if data.startswith(_IR_VERSION_KEY):
        return "is only the beginning of an ONNX graph, or damaged: make or download it again"
    return f"is no ONNX graph ({found})"


def tensors(message: Any) -> Iterator[onnx.TensorProto]:
    """Every tensor of a protobuf message: initializers, constants, those of subgraphs."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from tensors(part)


def _read_external(model: onnx.ModelProto, path: Path, whole: Any) -> Origin:
    """Load weights from files beside the graph (or beside the file that it links to) into the graph; `whole` is its hash."""
    files: dict[Path, str] = {}
    folders = list(dict.fromkeys([path.parent, Path(os.path.realpath(path)).parent]))
    digest, size_bytes = None, model.ByteSize()
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        facts = {entry.key: entry.value for entry in tensor.external_data}
        file = _external_file(facts.get("location", ""), folders, path)
        files[file] = facts["location"]
        offset, length = _place(file, facts, path)
        size_bytes += length
        if size_bytes >= MOST_BYTES:
            raise UsageError(f"--onnx: {path} with its weights is larger than {MOST_BYTES:,} bytes, which no graph in memory "
                             "may be: store its weights in half precision")  # fmt: skip
        with open_regular(file, error=UsageError) as opened:
            opened.seek(offset)
            tensor.raw_data = opened.read(length)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        digest = digest or hashlib.sha256()
        digest.update(tensor.raw_data)
    for file in files:
        with open_regular(file, error=UsageError) as opened:
            while chunk := opened.read(1 << 20):
                whole.update(chunk)
    return Origin(whole.hexdigest(), digest.hexdigest() if digest else "", tuple(files.values()))


def _external_file(location: str, folders: list[Path], path: Path) -> Path:
    """The file of that name in one of `folders`. Raises UsageError if it lies outside of them or does not exist."""
    if not location or PurePosixPath(location).is_absolute() or ".." in PurePosixPath(location).parts:
        raise UsageError(f"--onnx: {path} names the file {location!r} for its weights, which is not inside its folder")
    for folder in folders:
        try:
            if (folder / location).is_file():
                return folder / location
        except OSError:  # a name that no file can have
            continue
    raise UsageError(f"--onnx: {path} keeps its weights in {location}, which is not beside it: put both in one folder")


def _place(file: Path, facts: dict[str, str], path: Path) -> tuple[int, int]:
    """Offset and length of the bytes of one tensor. Raises UsageError if the file does not hold them."""
    size = file.stat().st_size
    numbers = [facts.get("offset", "0"), facts.get("length", "")]
    if not all(number.isascii() and number.isdigit() for number in numbers if number):
        raise UsageError(
            f"--onnx: {path} is damaged: its weights in {file.name} have offset {numbers[0]!r} and length {numbers[1]!r}"
        )
    offset = int(numbers[0] or 0)
    length = int(numbers[1]) if numbers[1] else max(0, size - offset)
    if offset + length > size:
        with open_regular(file, error=UsageError) as opened:
            found = identify(opened.read(HEAD_BYTES)).name
        what = f"is a {found}: {_HELP[found]}" if found == "Git LFS pointer" else "is cut off or another file"
        raise UsageError(f"--onnx: {file}, the weights of {path.name}, {what}: it has {size:,} bytes, "
                         f"{offset + length:,} are needed")  # fmt: skip
    return offset, length
