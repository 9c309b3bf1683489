"""Small data sets and archives made by hand, byte for byte as they are published."""

from __future__ import annotations

import gzip
import importlib.util
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np

PLANE = 1024  # pixels of a CIFAR picture


def sklearn_digits() -> Path:
    """The folder with scikit-learn's 1,797 digits, in its package."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "datasets" / "data"


def marked_rows(count: int) -> bytes:
    """CIFAR rows: red 10, green 20, blue 30, and in picture i a pixel (i + 1, 100, 200) at row 0, column 5."""
    rows = []
    for i in range(count):
        planes = [bytearray([value]) * PLANE for value in (10, 20, 30)]
        for plane, value in zip(planes, (i + 1, 100, 200), strict=True):
            plane[5] = value
        rows.append(b"".join(planes))
    return b"".join(rows)


def python2_pickle(rows: bytes, labels: list[int], label_key: bytes = b"labels") -> bytes:
    """A batch of CIFAR as Python 2 pickled it: text and data in strings of bytes (opcodes U and T)."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    minus_one = b"J\xff\xff\xff\xff"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\0K\1\x87R(K\3" + text(b"|") + b"NNN" + 2 * minus_one + b"K\0tb"
    shape = b"J" + struct.pack("<i", len(rows) // 3072) + b"M" + struct.pack("<H", 3072) + b"\x86"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R"
    array += b"(K\1" + shape + dtype + b"\x89T" + struct.pack("<I", len(rows)) + rows + b"tb"
    numbers = b"".join(b"J" + struct.pack("<i", label) for label in labels)
    return b"\x80\2}(" + text(b"data") + array + text(label_key) + b"](" + numbers + b"eu."


def python2_names(key: bytes, names: list[str]) -> bytes:
    """A meta file of CIFAR as Python 2 pickled it."""
    items = b"".join(b"U" + bytes([len(name)]) + name.encode() for name in names)
    return b"\x80\2}U" + bytes([len(key)]) + key + b"](" + items + b"es."


def cifar10_python(per_file: int = 2) -> dict[str, bytes]:
    """The files of CIFAR-10 in python form, by their path in the archive; labels count up and wrap at ten."""
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {
        name: python2_pickle(marked_rows(per_file), [(i + number) % 10 for i in range(per_file)])
        for number, name in enumerate(names)
    }
    files["batches.meta"] = python2_names(b"label_names", list("abcdefghij"))
    return {f"cifar-10-batches-py/{name}": data for name, data in files.items()}


def idx_images(images: np.ndarray) -> bytes:
    """An idx file of pictures, N x H x W."""
    return struct.pack(">IIII", 0x803, *images.shape) + images.astype(np.uint8).tobytes()


def idx_labels(labels: list[int]) -> bytes:
    """An idx file of labels."""
    return struct.pack(">II", 0x801, len(labels)) + bytes(labels)


def mnist_files(count: int = 4) -> dict[str, bytes]:
    """The four gzipped files of MNIST or Fashion-MNIST; picture i of a split is filled with i, with label i % 10."""
    images = np.repeat(np.arange(count, dtype=np.uint8), 28 * 28).reshape(count, 28, 28)
    files = {}
    for prefix in ("train", "t10k"):
        files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(idx_images(images))
        files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(idx_labels([number % 10 for number in range(count)]))
    return files


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files by their relative paths; returns the folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def tar(files: dict[str, bytes], compression: str = "gz", members: list[tarfile.TarInfo] | None = None) -> bytes:
    """A tar archive; `members` are further ones without content, such as links."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=f"w:{compression}") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in members or []:
            archive.addfile(member)
    return target.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def deb(files: dict[str, bytes], data_name: str = "data.tar.xz") -> bytes:
    """A Debian package: an ar archive of version, control files (of odd length) and content."""

    def member(name: str, data: bytes) -> bytes:
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        assert len(header) == 60
        return header + data + b"\n" * (len(data) % 2)

    content = tar({f"./{name}": data for name, data in files.items()}, data_name.rpartition(".")[2])
    return b"!<arch>\n" + member("debian-binary", b"2.0\n") + member("control.tar.gz", b"odd") + member(data_name, content)
