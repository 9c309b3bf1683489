"""Archives for tests: tar files and TFRecords of given pictures, and how their names become keys."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from bulkinfer.records.sources.tf_example import example_of
from bulkinfer.records.sources.tfrecord import frame_of


def write_tar(path: Path, files: Mapping[str, bytes], labels: Mapping[str, object] | None = None) -> Path:
    """A tar file of these files in order; behind each that has a label, its sample's .cls."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            add(archive, name, data)
            if labels and name in labels:
                add(archive, name.rpartition(".")[0] + ".cls", str(labels[name]).encode())
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """One more regular member."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def write_tfrecord(
    path: Path,
    files: Mapping[str, bytes],
    labels: Mapping[str, int] | None = None,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """A TFRecord file of these files in order; `labels` are written as they are, `texts` are names of classes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for name, data in files.items():
            features: dict[str, bytes | int] = {"image/encoded": data, "image/filename": name.encode()}
            if labels and name in labels:
                features["image/class/label"] = labels[name]
            if texts and name in texts:
                features["image/class/text"] = texts[name].encode()
            file.write(frame_of(example_of(features)))
    return path


def spread(files: Mapping[str, bytes], count: int) -> list[dict[str, bytes]]:
    """The files dealt out to `count` archives in turn."""
    names = list(files)
    return [{name: files[name] for name in names[number::count]} for number in range(count)]
