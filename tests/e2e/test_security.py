"""What SECURITY.md says of hostile files, tried out through the commands."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.json_file import write_json
from bulkinfer.model.card import graph_path, read_sidecar, write_sidecar
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_file import write_manifest
from bulkinfer.records.manifest_rows import SCHEMA, Entry

from tests import pictures
from tests.bombs import BOMBS
from tests.commands import children, command, records, run
from tests.forms import long, only_first
from tests.models import tiny_graph, write_tiny_model
from tests.pictures import encode, photo
from tests.sealed import edited

LAUNCH = ("infer_launch", "--model_name", "tiny", "--output", "out", "--device", "cpu", "--precision", "fp32")
FORMATS_LEFT_OUT = {
    "a.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(touched) (w) file closefile\n",
    "b.psd": b"8BPS\0\1" + bytes(60),
    "c.ico": encode(photo(), "ICO"),
    "d.icns": encode(photo(32, 32), "ICNS"),
    "e.dds": encode(photo(), "DDS"),
    "f.tga": encode(photo(), "TGA"),
    "g.pcx": encode(photo(), "PCX"),
    "h.sgi": encode(photo(), "SGI"),
    "i.png": b"SIMPLE  =                    T" + bytes(2880),  # FITS
    "j.png": b"\x89HDF\r\n\x1a\n" + bytes(64),
    "k.png": b"\xd7\xcd\xc6\x9a\0\0" + bytes(64),  # WMF
    "l.png": b"GRIB\0\0\0\1" + bytes(64),
    "m.png": b"PK\3\4" + bytes(64),
    "n.png": b"P7\nWIDTH 2\nHEIGHT 2\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n" + bytes(12),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models", batch_sizes=(6,))
    pictures.write_files(tmp_path / "photos", {"sound.png": encode(photo())})
    return tmp_path


def launch(place: Path, *words: object, code: int, data_dir: str = "photos") -> Any:
    found = run(*LAUNCH, "--data_dir", data_dir, *words, cwd=place)
    assert found.returncode == code, found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    return found


def partition_of(place: Path, lines: Any, **metadata: str) -> None:
    """data/: one partition whose manifest somebody else wrote, with every hash in order."""
    (place / "data" / "0").mkdir(parents=True)
    path = place / "data" / "0" / "manifest.parquet"
    manifest = Manifest.from_entries(lines, os.fsencode(place / "photos"))
    root = metadata.get("root", manifest.root.hex())
    write_manifest(path, manifest.lines, {"content_hash": manifest.content_hash, "mode": "manifest", "root": root})
    described = {"content": "bulkinfer partitions", "source": "x", "partitions": [{"content_hash": manifest.content_hash}]}
    write_json(place / "data" / "dataset.json", described)


def test_bombs_cost_a_row_each_and_their_neighbour_nothing(place: Path) -> None:
    names = ("gif_picture", "apng_frames_claimed", "ppm_comments", "jpeg_scans", "tiff_tile", "png_ztxt", "webp_canvas")
    pictures.write_files(place / "photos", {f"{name}.png": BOMBS[name]() for name in names})
    launch(place, code=3)
    rows = records(place / "out")
    assert {name for name, row in rows.items() if row["status"] == "ok"} == {
        "sound.png",
        "apng_frames_claimed.png",
        "png_ztxt.png",
    }
    assert len(rows) == len(names) + 1
    assert rows["apng_frames_claimed.png"]["flags"] == ["broken_frames"]


def test_only_the_formats_of_the_list_are_opened_whatever_their_names(place: Path) -> None:
    pictures.write_files(place / "photos", FORMATS_LEFT_OUT)
    launch(place, code=3)
    rows = records(place / "out")
    assert set(rows) == {"sound.png", *FORMATS_LEFT_OUT}
    for name in FORMATS_LEFT_OUT:
        assert rows[name]["error"].startswith(("unsupported format", "not a picture")), rows[name]


@long
def test_a_manifest_may_name_any_file_of_which_only_pictures_are_shown(place: Path) -> None:
    (place / "secret.txt").write_text("the password is swordfish")
    keys = (b"../secret.txt", b"a\0b.png", b"sound.png", b"\xff\xfe.png")
    partition_of(place, [Entry(key, 1) for key in keys])
    launch(place, code=3, data_dir="data")
    rows = records(place / "out")
    assert [row["status"] for row in rows.values()].count("ok") == 1
    assert "swordfish" not in str(rows)
    assert rows["../secret.txt"]["error"].startswith("not a picture: starts with")
    assert "zero byte" in rows["a\0b.png"]["error"]


def test_a_manifest_with_text_that_is_none_is_one_sentence(place: Path) -> None:
    table = pa.table(
        [
            pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]),
            pa.array([None], pa.binary()),
            pa.array([1], pa.int64()),
            pa.array([None], pa.int32()),
            pa.array([None], pa.list_(pa.int32())),
            pa.array([None], pa.int64()),
        ],
        SCHEMA,
    )
    partition_of(place, table)
    found = launch(place, code=1, data_dir="data")
    assert "is damaged" in found.stderr


@pytest.mark.parametrize("name", only_first(["../../secret.bin", "/etc/passwd", "..", ""]))
def test_a_card_that_leads_out_of_its_folder_is_refused(place: Path, name: str) -> None:
    path = place / "models" / "tiny" / "card.json"
    edited(path, lambda card: card.update(external_data=name))
    assert "must be the name of a file beside the card" in launch(place, code=2).stderr


@pytest.mark.parametrize("location", only_first(["../secret.bin", "{place}/secret.bin", "link.bin"]))
def test_a_graph_whose_weights_lie_outside_of_its_folder_is_refused(place: Path, location: str) -> None:
    """The files fit their hashes, as those of whoever made them would: it is the runtime that refuses."""
    folder, location = place / "models" / "tiny", location.format(place=place)
    graph = graph_path(folder, 6)
    model = tiny_graph(6)
    onnx.external_data_helper.convert_model_to_external_data(model, True, "secret.bin", size_threshold=100)  # the matrix alone
    onnx.save(model, graph)
    (folder / "secret.bin").rename(place / "secret.bin")
    (folder / "link.bin").symlink_to(place / "secret.bin")
    model = onnx.load(graph, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = location if entry.key == "location" else entry.value
    graph.write_bytes(model.SerializeToString())
    sidecar = read_sidecar(graph)
    write_sidecar(graph, type(sidecar)(file_sha256(graph), 6, sidecar.inputs, sidecar.outputs, {}))
    found = launch(place, code=2)
    assert re.search(
        "external data.*(outside|escape|not allowed|symlink)|(outside|escape|absolute).*external", found.stderr, re.I
    ), found.stderr


def test_modules_beside_the_pictures_are_not_imported(place: Path) -> None:
    for name in ("numpy", "PIL", "pyarrow", "bulkinfer", "onnxruntime", "sitecustomize"):
        (place / f"{name}.py").write_text(
            f"open('imported-{name}', 'w').close()\nraise SystemExit('from the working directory')\n"
        )
    launch(place, code=0)
    assert list(place.glob("imported-*")) == []
    assert [row["status"] for row in records(place / "out").values()] == ["ok"]


@long
def test_names_that_are_not_utf8_come_through_every_command(place: Path) -> None:
    odd = b"caf\xe9\xff.png"
    (place / "photos" / os.fsdecode(odd)).write_bytes(encode(photo()))
    assert run("partition_dataset", "--data_dir", "photos", "--partitions", 2, cwd=place).returncode == 0
    launch(place, code=0, data_dir="datasets")
    tables = [pq.read_table(path) for path in (place / "out").glob("part-*.parquet")]
    assert {row["key_bytes"] or row["key"].encode() for table in tables for row in table.to_pylist()} == {odd, b"sound.png"}
    assert run("bulkinfer", "verify", "out", cwd=place).returncode == 0


def test_nothing_listens_on_the_network(place: Path) -> None:
    words = command(*LAUNCH, "--synthetic", "--iterations", 100_000, "--batches_per_step", 200, "--log_path", "logs")
    words = [word for word in words if word not in ("--output", "out")]
    with subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as launcher:
        try:
            assert launcher.stdout is not None
            deadline = time.monotonic() + 300
            while not any("images/sec" in line for line in launcher.stdout if time.monotonic() < deadline):
                assert launcher.poll() is None
            processes = [launcher.pid, *children(launcher.pid)]
            assert len(processes) >= 2
            assert not {inode for pid in processes for inode in sockets_of(pid)} & listening()
        finally:
            launcher.terminate()


def sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets that a process has open."""
    names = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it is closed by now
            names.append(os.readlink(path))
    return {name.removeprefix("socket:[").removesuffix("]") for name in names if name.startswith("socket:")}


def listening() -> set[str]:
    """The inodes of all TCP sockets that wait for connections, and of all UDP sockets."""
    inodes = set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if kind.startswith("udp") or fields[3] == "0A":
                inodes.add(fields[9])
    return inodes


def test_the_look_for_listeners_finds_one() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        assert sockets_of(os.getpid()) & listening()
