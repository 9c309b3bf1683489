"""wrong_file.py: each kind of wrong file is described, with its size; sound files are not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
import pytest
from bulkinfer.files.wrong_file import describe_wrong_file

from tests.foreign_graphs import foreign_graph
from tests.pictures import HTML_PAGE, LFS_POINTER


@pytest.mark.parametrize("name", ["m.onnx", "m.pth", "weights-12.bin"])
@pytest.mark.parametrize(("data", "told"), [
    (b"", r"it is empty \(0 bytes\)"),
    (HTML_PAGE, rf"it is an HTML page of {len(HTML_PAGE)} bytes, "),
    (b"\xef\xbb\xbf<HTML><p>log in", r"it is an HTML page of 18 bytes, "),
    (LFS_POINTER, rf"it is a Git LFS pointer of {len(LFS_POINTER)} bytes, not the file itself: fetch that with git lfs pull"),
])  # fmt: skip
def test_b29_files_that_hold_nothing_of_ours(name: str, data: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"^{told}"):
        raise ValueError(describe_wrong_file(tmp_path / name))


def test_b29_a_graph_cut_inside_a_field_and_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(foreign_graph(num_classes=1000), path)
    whole = path.read_bytes()
    assert describe_wrong_file(path) == ""
    for fraction in (0.1, 0.5, 0.9):
        part = whole[: int(fraction * len(whole))]
        path.write_bytes(part)
        assert describe_wrong_file(path) == f"it is cut short ({len(part):,} bytes; a graph whose end is missing)"


@pytest.mark.parametrize(
    "data", [b"\x08" + b"\xff" * 40, b"\x08\x07" + bytes(100), b"\x08", b"\x08\x07\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"]
)
def test_any_bytes_end_the_look(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    assert describe_wrong_file(tmp_path / "m.onnx") in (
        "",
        f"it is cut short ({len(data):,} bytes; a graph whose end is missing)",
    )


def test_b29_an_archive_of_torch_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", bytes(range(256)) * 100)
    assert describe_wrong_file(path) == ""
    path.write_bytes(path.read_bytes()[:12_000])
    assert describe_wrong_file(path) == "it is cut short (12,000 bytes; a torch file whose end is missing)"
