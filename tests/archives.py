"""Archives for tests: tar and zip files, TFRecords, Parquet and Arrow files of given pictures."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bulkinfer.records.sources.tf_example import example_of
from bulkinfer.records.sources.tfrecord import frame_of


def write_tar(path: Path, files: Mapping[str, bytes], labels: Mapping[str, object] | None = None) -> Path:
    """A tar file of these files in order; behind each that has a label, its sample's .cls."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            add(archive, name, data)
            if labels and name in labels:
                add(archive, label_name(name), str(labels[name]).encode())
    return path


def write_tar_gz(path: Path, files: Mapping[str, bytes], labels: Mapping[str, object] | None = None) -> Path:
    """The same, compressed by gzip."""
    path.write_bytes(gzip.compress(write_tar(path, files, labels).read_bytes(), 1))
    return path


def label_name(name: str) -> str:
    """The member with the label of a picture, by WebDataset's rule."""
    stem, dot, _ = name.rpartition(".")
    return f"{stem if dot else name}.cls"


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


def write_zip(path: Path, files: Mapping[str, bytes], labels: Mapping[str, object] | None = None) -> Path:
    """A zip file of these files in order, stored and deflated in turn; behind each that has a label, its sample's .cls."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for number, (name, data) in enumerate(files.items()):
            archive.writestr(name, data, zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED)
            if labels and name in labels:
                archive.writestr(label_name(name), str(labels[name]))
    return path


def picture_table(
    files: Mapping[str, bytes | None], labels: Mapping[str, int] | None = None, class_names: Sequence[str] = ()
) -> pa.Table:
    """A table as `datasets` of Hugging Face writes it: a column `image`, and one `label` if there are labels."""
    images = [{"bytes": data, "path": name} for name, data in files.items()]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns: dict[str, Any] = {"image": pa.array(images, kind)}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    if labels is not None:
        columns["label"] = pa.array([labels.get(name) for name in files], pa.int64())
        features["label"] = {"names": [*class_names], "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(columns).replace_schema_metadata(metadata)


def write_parquet(path: Path, table: pa.Table, **options: Any) -> Path:
    """A Parquet file, in row groups of few rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **{"row_group_size": 4, **options})
    return path


def write_arrow(path: Path, table: pa.Table, *, is_stream: bool = False) -> Path:
    """An Arrow file or stream, in record batches of few rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


def spread(files: Mapping[str, bytes], count: int) -> list[dict[str, bytes]]:
    """The files dealt out to `count` archives in turn."""
    names = list(files)
    return [{name: files[name] for name in names[number::count]} for number in range(count)]
