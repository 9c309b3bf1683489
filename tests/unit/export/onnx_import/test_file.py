"""Files of foreign graphs: what they are where they are none, and the weights beside them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import.file import read_model, tensors
from bulkinfer.export.onnx_import.graph import open_model, run

from tests.foreign_graphs import SIDE, foreign_graph, head, save
from tests.pictures import HTML_PAGE, LFS_POINTER


@pytest.mark.parametrize(("data", "told"), [
    (LFS_POINTER, "is a Git LFS pointer, no ONNX graph: fetch the file itself with git lfs pull"),
    (HTML_PAGE, "is an HTML page, no ONNX graph: what was downloaded is a page about the file"),
    (b"half", "is only the beginning of an ONNX graph, or damaged: make or download it again"),
    (b"", "is empty: make or download it again"),
    (b"PK\3\4 a checkpoint of torch", "is no ONNX graph (ZIP archive)"),
    (bytes(100), "is no ONNX graph (zero bytes)"),
])  # fmt: skip
def test_b29_a_file_that_is_none_is_called_what_it_is(data: bytes, told: str, tmp_path: Path) -> None:
    whole = foreign_graph(num_classes=100).SerializeToString()
    data = whole[: len(whole) // 2] if data == b"half" else data
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_model(path)
    assert str(caught.value).startswith(f"--onnx: {path} ({len(data):,} bytes) {told}")


def test_every_beginning_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = foreign_graph().SerializeToString()
    path = tmp_path / "m.onnx"
    for size in range(0, len(whole) - 8, 7):  # what comes last is the opset
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"is (only the beginning|empty|no ONNX graph)"):
            read_model(path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.onnx does not exist$"):
        read_model(tmp_path / "absent.onnx")
    with pytest.raises(UsageError, match=r"is a folder: give the \.onnx file in it"):
        read_model(tmp_path)
    (tmp_path / "link.onnx").symlink_to(tmp_path / "gone.onnx")
    with pytest.raises(UsageError, match="is a link to a file that is not there"):
        read_model(tmp_path / "link.onnx")


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A graph with its weights in w.data beside it."""
    model = foreign_graph(num_classes=500)
    return save(model, tmp_path / "made", save_as_external_data=True, location="w.data", size_threshold=10)


@pytest.mark.parametrize("links", [False, True])
def test_weights_beside_the_graph_are_read_through_links(external: Path, links: bool, tmp_path: Path) -> None:
    path = external
    if links:  # as a download cache has them: both are links to files called by their hash
        (tmp_path / "cache").mkdir()
        for name in ("m.onnx", "w.data"):
            (external.parent / name).rename(external.parent / f"blob-{name}")
            (tmp_path / "cache" / name).symlink_to(external.parent / f"blob-{name}")
        path = tmp_path / "cache" / "m.onnx"
    model, _ = read_model(path)
    (tensor,) = [tensor for tensor in tensors(model) if tensor.name == "w"]
    assert np.array_equal(onnx.numpy_helper.to_array(tensor), head(500))
    assert run(open_model(model, "m"), np.zeros((2, 3, SIDE, SIDE), np.float32), ["y"])[0].shape == (2, 500)


def test_a_link_to_the_graph_alone_finds_them_too(external: Path, tmp_path: Path) -> None:
    (tmp_path / "link.onnx").symlink_to(external)
    assert len(list(tensors(read_model(tmp_path / "link.onnx")[0]))) == 1


def test_lost_and_cut_weights(external: Path) -> None:
    data = external.with_name("w.data")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UsageError, match=r"w\.data, the weights of m\.onnx, is cut off .* it has 100 bytes, 6,000 are needed"):
        read_model(external)
    data.unlink()
    with pytest.raises(UsageError, match=r"m\.onnx keeps its weights in w\.data, which is not beside it: put both in"):
        read_model(external)


@pytest.mark.parametrize("location", ["../w.data", "/etc/passwd", ""])
def test_weights_outside_of_the_folder_are_not_read(location: str, external: Path) -> None:
    model = onnx.load(external, load_external_data=False)
    for tensor in tensors(model):
        for entry in tensor.external_data:
            entry.value = location if entry.key == "location" else entry.value
    external.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="which is not inside its folder"):
        read_model(external)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path("/dev/zero")):
        with pytest.raises(UsageError, match="is a pipe or a device: copy its content to a file"):
            read_model(path)


def test_names_that_no_file_has(external: Path) -> None:
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(UsageError, match="--onnx names no file that can be read"):
            read_model(Path(name))
    with pytest.raises(UsageError, match=r"keeps its weights in x+, which is not beside it"):
        read_model(changed(external, location="x" * 400))


def test_whole_graphs_with_nothing_to_run(tmp_path: Path) -> None:
    for field, told in (("node", "operators"), ("output", "outputs")):
        model = foreign_graph()
        model.graph.ClearField(field)
        with pytest.raises(UsageError, match=f"holds a graph without {told}, which cannot be run"):
            read_model(save(model, tmp_path))


@pytest.mark.parametrize(("name", "data", "told"), [
    ("m.ort", b"\x14\0\0\0ORTM", "is in the ORT format"),
    ("m.pth", b"PK\3\4", r"is no ONNX graph \(ZIP archive\): export it with torch\.onnx\.export first"),
    ("m.onnx", b"PK\3\4", r"is no ONNX graph \(ZIP archive\): unpack it first"),
])  # fmt: skip
def test_files_of_other_tools(name: str, data: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data + bytes(100))
    with pytest.raises(UsageError, match=told):
        read_model(tmp_path / name)


def changed(path: Path, **facts: str) -> Path:
    """The graph with other words about where its weights are."""
    model = onnx.load(path, load_external_data=False)
    for tensor in tensors(model):
        for entry in tensor.external_data:
            entry.value = facts.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("facts", [{"offset": "-5"}, {"offset": "abc"}, {"length": "-4"}, {"length": "1e3"}])
def test_places_of_weights_that_are_no_numbers(external: Path, facts: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"m\.onnx is damaged: its weights in w\.data have offset"):
        read_model(changed(external, **facts))


def test_weights_that_are_a_pointer_are_called_so(external: Path) -> None:
    external.with_name("w.data").write_bytes(LFS_POINTER)
    with pytest.raises(UsageError, match="is a Git LFS pointer: fetch the file itself with git lfs pull"):
        read_model(external)


def test_the_hash_follows_the_weights_beside_the_graph(external: Path, tmp_path: Path) -> None:
    before = read_model(external)[1].weights_sha256
    data = external.with_name("w.data")
    data.write_bytes(bytes(data.stat().st_size))
    assert len(before) == 64
    assert read_model(external)[1].weights_sha256 not in ("", before)
    assert read_model(save(foreign_graph(), tmp_path))[1].weights_sha256 == ""


def test_more_weights_than_a_graph_may_hold(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkinfer.export.onnx_import.file.MOST_BYTES", 6000)
    with pytest.raises(UsageError, match=r"m\.onnx with its weights is larger than 6,000 bytes, which no graph in memory"):
        read_model(external)
